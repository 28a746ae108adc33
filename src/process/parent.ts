/** Longer than any drain: nobody is left who could end a process that hangs. */
const drainLimitMs = 60_000

/**
 * Makes a process that the launcher started end when the launcher is gone, by the way that SIGTERM takes: the channel
 * between the two closes however the launcher died. Without a launcher, as under a process manager, it does nothing.
 */
export function exitWithParent(): void {
  // Undefined when there never was a channel, false when it has closed already.
  if (process.connected === undefined) return
  if (!process.connected) end()
  process.once('disconnect', end)
  // The channel alone must not keep a process alive that has finished.
  process.channel?.unref()
}

function end(): void {
  process.kill(process.pid, 'SIGTERM')
  setTimeout(() => process.exit(1), drainLimitMs).unref()
}
