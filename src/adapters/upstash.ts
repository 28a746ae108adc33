import type { Logger } from 'pino'
import { onFirstUse } from '../language/once.ts'

const upstash = onFirstUse<typeof import('@upstash/redis')>('@upstash/redis')

/** The operations that Redis and Upstash have in common. */
export type RemoteRedis = {
  get(key: string): Promise<string | null>
  /** A Lua script, which runs as a whole or not at all. */
  run(script: string, keys: readonly string[], values: readonly (string | number)[]): Promise<unknown>
  close(): void
}

const longestWaitMs = 1000
const longestPauseMs = 1000

type UpstashAddress = { readonly url: string; readonly token: string }

/**
 * A Redis behind Upstash's REST interface, with the promises of `openRedis`: a command is answered or rejected within a
 * second, and after a failure none is tried for another one. An error that Redis answers pauses nothing.
 */
export function openUpstash(address: UpstashAddress, log: Logger): RemoteRedis {
  const client = openClient(address, longestWaitMs)
  let away = false
  let pausedUntil = 0
  const bounded = async <Answer>(ask: () => Promise<Answer>): Promise<Answer> => {
    if (performance.now() < pausedUntil) throw new Error('Upstash did not answer a moment ago')
    try {
      const answer = await ask()
      if (away) log.info('Upstash is back')
      away = false
      return answer
    } catch (error) {
      if ((error as Error).name === 'UpstashError') throw withoutCommand(error as Error)
      pausedUntil = performance.now() + longestPauseMs
      if (!away) log.warn({ err: error }, 'Upstash is away')
      away = true
      throw error
    }
  }
  return {
    get: (key) => bounded(() => client.get<string>(key)),
    run: (script, keys, values) => bounded(() => client.eval(script, [...keys], [...values])),
    close: () => undefined,
  }
}

const longestPingMs = 5000

/** Asks for a sign of life, once: what Upstash says against it, undefined when it gives one. Does not throw. */
export async function pingUpstash(address: UpstashAddress): Promise<string | undefined> {
  try {
    const answer = await openClient(address, longestPingMs).ping()
    return answer === 'PONG' ? undefined : 'what answers is not Upstash'
  } catch (error) {
    if ((error as Error).name === 'UpstashError') return withoutCommand(error as Error).message
    return (error as Error).name === 'UpstashJSONParseError' ? 'what answers is not Upstash' : 'no answer'
  }
}

function openClient(address: UpstashAddress, longestMs: number) {
  return new (upstash().Redis)({
    ...address,
    retry: false,
    enableAutoPipelining: false,
    automaticDeserialization: false,
    enableTelemetry: false,
    signal: () => AbortSignal.timeout(longestMs),
  })
}

/** Its message repeats the command with all its values, which are no business of a log. */
const withoutCommand = ({ message }: Error): Error => new Error(message.split(', command was', 1)[0])
