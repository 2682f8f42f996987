<?php
// A client with the statements that Nene DistributedLock sends, by PDO. It reads a command with its arguments, separated
// by tabs, from each line, and answers in one line.
//
// Arguments: DSN, user, table, and how much its host's clock is ahead, in seconds.

declare(strict_types=1);

[, $dsn, $user, $table, $ahead] = $argv;
$db = new PDO($dsn, $user, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
$driver = $db->getAttribute(PDO::ATTR_DRIVER_NAME);

function at(int $later): string
{
    global $ahead;
    return gmdate('Y-m-d H:i:s', time() + (int) $ahead + $later);
}

function send(string $sql, array $values): PDOStatement
{
    global $db;
    $statement = $db->prepare($sql);
    $statement->execute($values);
    return $statement;
}

function select(string $resource): ?array
{
    global $table;
    $found = send("SELECT owner, expires_at FROM $table WHERE resource = :r LIMIT 1", ['r' => $resource]);
    return $found->fetch(PDO::FETCH_ASSOC) ?: null;
}

// The library's own; PostgreSQL has no IGNORE, so there the second one stands for a client that was mended.
function insert(string $resource, string $owner, int $ttl, bool $mended): bool
{
    global $table, $driver;
    $values = ['r' => $resource, 'o' => $owner, 'e' => at($ttl), 'a' => at(0)];
    $row = "INTO $table (resource, owner, expires_at, acquired_at) VALUES (:r, :o, :e, :a)";
    if ($mended && $driver === 'pgsql') {
        return send("INSERT $row ON CONFLICT DO NOTHING", $values)->rowCount() > 0;
    }
    $ignore = $driver === 'sqlite' ? 'OR IGNORE' : 'IGNORE';
    try {
        return send("INSERT $ignore $row", $values)->rowCount() > 0;
    } catch (PDOException) {
        return false;
    }
}

// The library does not look at the number of rows.
function overwrite(string $resource, string $owner, int $ttl): int
{
    global $table;
    $values = ['o' => $owner, 'e' => at($ttl), 'a' => at(0), 'r' => $resource];
    $sql = "UPDATE $table SET owner = :o, expires_at = :e, acquired_at = :a WHERE resource = :r";
    return send($sql, $values)->rowCount();
}

// Whether it acquired; for the test also how long after its look it wrote, in milliseconds, and how many rows.
function acquire(string $resource, string $owner, int $ttl, bool $mended): string
{
    $began = microtime(true);
    $row = select($resource);
    if ($row === null) {
        $rows = (int) insert($resource, $owner, $ttl, $mended);
        if ($rows === 0) {
            return 'no';
        }
    } elseif ($row['owner'] === $owner || $row['expires_at'] <= at(0)) {
        $rows = overwrite($resource, $owner, $ttl);
    } else {
        return 'no';
    }
    $after = (int) ((microtime(true) - $began) * 1000);
    return "yes\t$after\t$rows";
}

function renew(string $resource, string $owner, int $ttl): bool
{
    global $table;
    $values = ['e' => at($ttl), 'r' => $resource, 'o' => $owner, 'n' => at(0)];
    $sql = "UPDATE $table SET expires_at = :e WHERE resource = :r AND owner = :o AND expires_at > :n";
    return send($sql, $values)->rowCount() > 0;
}

function release(string $resource, string $owner): bool
{
    global $table;
    $sql = "DELETE FROM $table WHERE resource = :r AND owner = :o";
    return send($sql, ['r' => $resource, 'o' => $owner])->rowCount() > 0;
}

function isHeld(string $resource): bool
{
    global $table;
    $sql = "SELECT 1 FROM $table WHERE resource = :r AND expires_at > :n LIMIT 1";
    return send($sql, ['r' => $resource, 'n' => at(0)])->fetch() !== false;
}

// A row as the library's own tests craft it.
function craft(string $resource, string $owner, string $expires): void
{
    global $table;
    $sql = "INSERT INTO $table (resource, owner, expires_at, acquired_at) VALUES (?, ?, ?, ?)";
    send($sql, [$resource, $owner, $expires, $expires]);
}

function answer(array $words): string
{
    global $db;
    $word = fn(bool $yes): string => $yes ? 'yes' : 'no';
    switch ($words[0]) {
        case 'acquire': return acquire($words[1], $words[2], (int) $words[3], false);
        case 'acquire-mended': return acquire($words[1], $words[2], (int) $words[3], true);
        case 'overwrite': return (string) overwrite($words[1], $words[2], (int) $words[3]);
        case 'renew': return $word(renew($words[1], $words[2], (int) $words[3]));
        case 'release': return $word(release($words[1], $words[2]));
        case 'held': return $word(isHeld($words[1]));
        case 'owner': return select($words[1])['owner'] ?? '';
        case 'craft': craft($words[1], $words[2], at((int) $words[3])); return 'done';
        case 'expires': return select($words[1])['expires_at'] ?? '';
        case 'time': return at(0);
        case 'begin': $db->beginTransaction(); return 'done';
        case 'rollback': $db->rollBack(); return 'done';
    }
    return 'unknown command';
}

while (($line = fgets(STDIN)) !== false) {
    try {
        echo answer(explode("\t", rtrim($line, "\n"))), "\n";
    } catch (PDOException $e) {
        echo 'exception: ', strtr($e->getMessage(), "\n", ' '), "\n";
    }
}
