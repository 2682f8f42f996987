-- A batch, each part in its turn: acquires may wait on MySQL, and no row is locked before. A part without requests is null. p_batch is
-- a number that occurs once.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_batch(
    p_batch BIGINT,
    p_acquires LONGTEXT,
    p_host VARBINARY(255),
    p_pid BIGINT,
    p_program VARBINARY(255),
    p_renewals LONGTEXT,
    p_releases LONGTEXT,
    p_highest BIGINT
)
SQL SECURITY INVOKER
BEGIN
    {rolls_back}
    {begins}
    IF p_acquires IS NOT NULL THEN
        CALL {schema}.leasehold_acquire_batch(p_batch, p_acquires, p_host, p_pid, p_program);
    END IF;
    IF p_renewals IS NOT NULL THEN
        CALL {schema}.leasehold_renew_batch(p_batch, p_renewals);
    END IF;
    IF p_releases IS NOT NULL THEN
        CALL {schema}.leasehold_release_batch(p_releases, p_highest);
    END IF;
    COMMIT;
END
