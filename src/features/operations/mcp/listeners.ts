import type { Logger } from 'pino'
import type { CurrentAccess } from '../../../access/store.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { ListeningClient } from '../../../adapters/mcp.ts'
import { AppError } from '../../../errors.ts'

/** A client that wants to hear when its tools change, for as long as its answer lasts. */
export type ToolListener = {
  readonly userId: string
  /** The names of its tools when it began to listen. */
  readonly names: string
  /** Those of now; 401 or 403 when its credential no longer allows listening. */
  readonly namesNow: () => Promise<string>
} & ListeningClient

export type Listeners = {
  /** Refuses (429) one too many. */
  admit(userId: string): void
  /** Gives the way to stop listening. */
  add(listener: ToolListener): () => void
  endAll(): void
}

const most = { ofAll: 1000, ofUser: 16 }
/** A session that merely ends, or a role that is exchanged, changes no rule that this process hears of. */
const lookEveryMs = 15_000
/** Rules often change several at a time. */
const calmMs = 100

/** Asks for each listener's tools anew whenever roles, permissions or collections change, in whichever process. */
export function openListeners({ access, log }: CurrentAccess & Logs): Listeners {
  const open: Open = new Map()
  let next: NodeJS.Timeout | undefined
  let at = Number.POSITIVE_INFINITY

  const plan = (inMs: number) => {
    const wanted = performance.now() + inMs
    if (open.size === 0 || wanted >= at) return
    clearTimeout(next)
    at = wanted
    next = setTimeout(() => {
      at = Number.POSITIVE_INFINITY
      void lookAt(open, log).finally(() => plan(lookEveryMs))
    }, inMs).unref()
  }
  access.onChange(() => plan(calmMs))

  return {
    admit: (userId) => {
      const own = [...open.keys()].filter((listener) => listener.userId === userId).length
      if (open.size >= most.ofAll || own >= most.ofUser)
        throw new AppError(429, 'Too many clients listen already', { headers: { 'retry-after': '60' } })
    },
    add: (listener) => {
      open.set(listener, listener.names)
      plan(lookEveryMs)
      return () => void open.delete(listener)
    },
    endAll: () => {
      clearTimeout(next)
      for (const { end } of [...open.keys()]) end()
    },
  }
}

/** With the names of their tools that they know of. */
type Open = Map<ToolListener, string>

async function lookAt(open: Open, log: Logger): Promise<void> {
  for (const [listener, known] of [...open]) {
    try {
      const now = await listener.namesNow()
      if (known === now || !open.has(listener)) continue
      open.set(listener, now)
      listener.tellOfChange()
    } catch (error) {
      const isOver = error instanceof AppError && (error.status === 401 || error.status === 403)
      if (isOver) listener.end()
      else log.warn({ err: error }, 'the tools of a listening client could not be read')
    }
  }
}
