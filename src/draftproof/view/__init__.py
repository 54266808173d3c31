"""A recorded run as a page: `data.py` gathers what is shown, `page.py` puts it into `page.html`."""
