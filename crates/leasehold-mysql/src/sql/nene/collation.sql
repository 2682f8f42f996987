-- Whether the server has the collation of MariaDB, whatever version it reports.
SELECT COUNT(*) AS o_found FROM information_schema.COLLATIONS WHERE COLLATION_NAME = 'utf8mb4_nopad_bin'
