"""The delayq operator: turns each DelayQueue into running Deployments, a CronJob and a truthful status."""
