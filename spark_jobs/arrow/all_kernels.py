"""Import this to compile every kernel of the workers into the cache: each is compiled when its module is imported."""

from spark_jobs.arrow import avro_kernels, column_kernels, key_kernels, message_kernels

KERNELS = (avro_kernels, column_kernels, key_kernels, message_kernels)
