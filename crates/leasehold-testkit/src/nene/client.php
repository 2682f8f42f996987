<?php
// A client with the statements that Nene DistributedLock sends, by PDO. It reads a command with its arguments, separated
// by tabs, from each line, and answers in one line.
//
// Arguments: DSN, user, table, and how much its host's clock is ahead, in seconds.

declare(strict_types=1);

[, $dsn, $user, $table, $ahead] = $argv;
$db = new PDO($dsn, $user, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
$driver = $db->getAttribute(PDO::ATTR_DRIVER_NAME);

$stopped = null;

function at(int $later): string
{
    global $ahead, $stopped;
    return gmdate('Y-m-d H:i:s', ($stopped ?? time() + (int) $ahead) + $later);
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

// Whether it acquired; for the test also how long after its look it wrote, in milliseconds, and how many rows. It is
// stopped between the two for `$stop` milliseconds.
function acquire(string $resource, string $owner, int $ttl, int $stop, bool $mended): string
{
    $began = microtime(true);
    $row = select($resource);
    usleep($stop * 1000);
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

// From now on triggers keep every write to the table: when, whose the row was, until when, and whose it is now.
function watch(): void
{
    global $db, $table, $driver;
    $column = ['sqlite' => 'INTEGER', 'mysql' => 'BIGINT AUTO_INCREMENT', 'pgsql' => 'bigserial'][$driver];
    $db->exec("CREATE TABLE writes (
        nth $column PRIMARY KEY, at DOUBLE PRECISION, old_owner VARCHAR(255), old_end BIGINT, new_owner VARCHAR(255)
    )");
    $now = [
        'sqlite' => "(julianday('now') - 2440587.5) * 86400",
        'mysql' => 'UNIX_TIMESTAMP(SYSDATE(6))',
        'pgsql' => 'extract(epoch FROM clock_timestamp())',
    ][$driver];
    $end = [
        'sqlite' => "CAST(strftime('%s', OLD.expires_at) AS INTEGER)",
        'mysql' => "TIMESTAMPDIFF(SECOND, '1970-01-01', OLD.expires_at)",
        'pgsql' => 'extract(epoch FROM OLD.expires_at)',
    ][$driver];
    foreach (['INSERT' => [false, true], 'UPDATE' => [true, true], 'DELETE' => [true, false]] as $event => [$old, $new]) {
        [$whose, $until] = $old ? ['OLD.owner', $end] : ['NULL', 'NULL'];
        $by = $new ? 'NEW.owner' : 'NULL';
        $write = "INSERT INTO writes (at, old_owner, old_end, new_owner) VALUES ($now, $whose, $until, $by);";
        $action = "BEGIN $write END";
        if ($driver === 'pgsql') {
            $db->exec("CREATE FUNCTION write_$event() RETURNS trigger LANGUAGE plpgsql SET search_path = public
                AS $$ BEGIN $write RETURN NULL; END $$");
            $action = "EXECUTE FUNCTION write_$event()";
        }
        $db->exec("CREATE TRIGGER write_$event AFTER $event ON $table FOR EACH ROW $action");
    }
}

// Four values for each write; an empty one is none.
function writes(): array
{
    $found = send('SELECT at, old_owner, old_end, new_owner FROM writes ORDER BY nth', []);
    return array_merge(...$found->fetchAll(PDO::FETCH_NUM));
}

function answer(array $words): string
{
    global $db, $stopped;
    $word = fn(bool $yes): string => $yes ? 'yes' : 'no';
    switch ($words[0]) {
        case 'acquire': return acquire($words[1], $words[2], (int) $words[3], 0, false);
        case 'acquire-mended':
            return acquire($words[1], $words[2], (int) $words[3], (int) $words[4], true);
        case 'overwrite': return (string) overwrite($words[1], $words[2], (int) $words[3]);
        case 'renew': return $word(renew($words[1], $words[2], (int) $words[3]));
        case 'release': return $word(release($words[1], $words[2]));
        case 'held': return $word(isHeld($words[1]));
        case 'owner': return select($words[1])['owner'] ?? '';
        case 'craft': craft($words[1], $words[2], at((int) $words[3])); return 'done';
        case 'watch': watch(); return 'done';
        case 'writes': return implode("\t", writes());
        case 'stop': $stopped = (int) $words[1]; return 'done';
        case 'run': $db->exec($words[1]); return 'done';
        case 'begin': $db->beginTransaction(); return 'done';
        case 'rollback': $db->rollBack(); return 'done';
        case 'commit': $db->commit(); return 'done';
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
