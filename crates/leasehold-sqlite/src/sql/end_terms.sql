DELETE FROM {prefix}holders WHERE expires IS NOT NULL
