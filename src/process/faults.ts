import type { Logger } from 'pino'
import { runningExtension } from '../language/extension-code.ts'
import { wordsOf } from '../language/thrown.ts'

/**
 * Tells of errors that no code waits for any more, by the name of the extension that has led to them. A promise of an
 * extension that is rejected without being awaited has interrupted nothing of ours, and the process goes on. After anything else it
 * may be in any state: `end` is to end it, when it has answered what it can.
 */
export function watchFaults(log: Logger, end: () => void): void {
  process.on('unhandledRejection', (reason) => {
    const extension = runningExtension()
    const err = errorOf(reason)
    if (extension !== undefined)
      return log.error({ err, extension }, 'an extension has not awaited a promise, which was rejected')
    log.fatal({ err }, 'a promise was rejected that nothing awaits: the process ends')
    end()
  })
  process.on('uncaughtException', (thrown) => {
    const extension = runningExtension()
    log.fatal({ err: errorOf(thrown), extension }, 'an error was thrown that nothing catches: the process ends')
    end()
  })
}

const errorOf = (thrown: unknown): Error =>
  thrown instanceof Error ? thrown : new Error(wordsOf(thrown), { cause: thrown })
