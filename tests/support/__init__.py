"""Fakes and drivers that several kinds of test share."""
