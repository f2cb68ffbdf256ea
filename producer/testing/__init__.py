"""The twins that ship with the producer's interfaces: in memory, and failing on demand. Nothing at run time imports them."""
