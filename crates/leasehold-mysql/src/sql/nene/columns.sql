{now} AS o_now, @@autocommit AS o_commits,
    CONCAT_WS(',', @@character_set_client, @@character_set_connection, @@character_set_results)
        = 'utf8mb4,utf8mb4,utf8mb4' AS o_utf8,
    {read_only} AS o_read_only, resource AS o_resource, owner AS o_owner,
    TIMESTAMPDIFF(SECOND, '1970-01-01', expires_at) AS o_expires_at,
    TIMESTAMPDIFF(SECOND, '1970-01-01', acquired_at) AS o_acquired_at
