"""Tables of a source drawn by chance, worked on at random through Debezium, and what the lake must say of them."""
