"""Direct plans held against Spark's ordinary way: over the shop's transforms, and over transforms made by chance."""
