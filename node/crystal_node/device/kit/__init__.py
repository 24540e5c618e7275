"""The recovery kit: the page that is printed or written down (``page``), the typing of it back (``typing_back``), and how a
kit stands to the vault as the device log tells it (``standing``)."""
