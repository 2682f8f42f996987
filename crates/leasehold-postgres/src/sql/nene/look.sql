-- Always returns a row, with the state of the session and of the server. As everywhere here, names and operators are
-- qualified: the search path of a session may begin with a schema in which others create functions and operators.
SELECT {columns}
FROM (SELECT 1) AS one LEFT JOIN {schema}."{table}" ON resource OPERATOR(pg_catalog.=) $1
