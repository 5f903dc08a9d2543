"""The cluster in Kafka's znodes: `reading` makes an image of a tree, `writing` makes changes of nodes.

Only this package and `metadata/` should know paths and JSON.
"""
