"""Health of the device: findings, status, and the doctor."""
