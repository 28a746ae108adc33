import type { Answer, Call, Refusal, Told } from '../../../clients/console-messages.ts'
import { DaybookError } from '../../../clients/http.ts'
import { answered, fresh, heard } from './budget.ts'
import { readMessage } from './messages.ts'

/** Why the console no longer listens to a frame. */
export type End = 'flood' | 'silence'

type HostOptions = {
  /** Does what is asked; what it throws is what the frame is refused by. */
  readonly perform: (call: Call, signal: AbortSignal) => Promise<unknown>
  readonly onEnd: (why: End) => void
}

export type Host = { tell(message: Told): void; close(): void }

/** A refusal of the console itself. */
export class Refused extends Error {
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

/** Milliseconds. */
const callTimeoutMs = 30_000
const pingEveryMs = 5_000
const pongWithinMs = 15_000

/**
 * The console's end of the line to a frame: reads what is said, has it done and answers. It ends by itself when the frame says
 * too much at once, or nothing when it is asked whether it is there.
 */
export function openHost(port: MessagePort, { perform, onEnd }: HostOptions): Host {
  let budget = fresh(performance.now())
  let heardAt = performance.now()
  const ended = new AbortController()
  const close = () => {
    ended.abort()
    clearInterval(timer)
    port.onmessage = null
    port.close()
  }
  const end = (why: End) => {
    close()
    onEnd(why)
  }
  const send = (message: Told | Answer) => {
    if (!ended.signal.aborted) port.postMessage(JSON.stringify(message))
  }
  const refuse = (id: number | null, error: Refusal) => send({ id, ok: false, error })
  const answer = async (id: number, call: Call) => {
    try {
      const result = await perform(call, AbortSignal.any([ended.signal, AbortSignal.timeout(callTimeoutMs)]))
      send({ id, ok: true, result: result ?? null })
    } catch (error) {
      refuse(id, refusalOf(error))
    } finally {
      budget = answered(budget)
    }
  }
  port.onmessage = ({ data }: MessageEvent<unknown>) => {
    const now = performance.now()
    heardAt = now
    const said = readMessage(data)
    const [next, verdict] = heard(budget, now, 'call' in said)
    budget = next
    if (verdict === 'flood') return end('flood')
    if ('problem' in said) return refuse(said.id, { code: 'BAD_MESSAGE', message: said.problem, status: 0 })
    if ('pong' in said) return
    if (verdict === 'busy')
      return refuse(said.id, { code: 'BUSY', message: 'too many calls are not answered yet', status: 0 })
    const { id, ...call } = said
    void answer(id, call as Call)
  }
  const timer = setInterval(() => {
    // A page that nobody looks at is given no time to answer.
    if (document.hidden) heardAt = performance.now()
    else if (performance.now() - heardAt > pongWithinMs) return end('silence')
    send({ told: 'ping' })
  }, pingEveryMs)
  return { tell: send, close }
}

function refusalOf(error: unknown): Refusal {
  if (error instanceof DaybookError) {
    const { code, message, status, details } = error
    return { code, message, status, ...(details !== undefined && { details }) }
  }
  if (error instanceof Refused) return { code: error.code, message: error.message, status: 0 }
  if (error instanceof DOMException && error.name === 'TimeoutError')
    return { code: 'TIMEOUT', message: 'The server has not answered in time', status: 0 }
  // An extension does not learn of the console's own faults.
  reportError(error)
  return { code: 'FAILED', message: 'The console could not do this', status: 0 }
}
