-- Whether an epoch has records that may still exclude somebody and whose term only its own clock can judge.
SELECT EXISTS (
    SELECT 1
    FROM {prefix}holders
    WHERE epoch = ?1 AND expires IS NOT NULL AND state <> 'evicted'
)
