"""What tenants try: objects that are made to cost much, or to get around a rule."""
