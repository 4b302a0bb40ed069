"""The inspector's views: functions from a trace to the data that the page draws."""
