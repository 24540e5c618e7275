"""How this device stands: status, what the person has to look after, the doctor, the check of the whole memory."""
