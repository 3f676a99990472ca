"""PyTorch modules come in here, through torch.export. Needs the extra ``satchel[torch]``."""
