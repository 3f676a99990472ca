"""What a model's layers see of a text: the statistics that better rounding is made from."""
