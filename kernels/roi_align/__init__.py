"""Regions of images brought to one size: RoiAlign and MaxRoiPool."""
