import { exitWithParent } from '../../src/process/start-up.ts'

/** A process that does nothing until it is told to stop, as our own do. */
exitWithParent()
const idle = setInterval(() => undefined, 60_000)
process.on('SIGTERM', () => {
  process.stdout.write('stopping\n')
  clearInterval(idle)
})
process.stdout.write('waiting\n')
