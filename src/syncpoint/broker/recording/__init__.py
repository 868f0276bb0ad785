"""Recording: delivery records, which say of batches of a topic's messages what became of them, and when"""
