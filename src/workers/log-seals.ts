import { open } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { type LogKeys, logKeys } from '../adapters/log-key.ts'
import { unregisterConsumer } from '../db/unlogged/consumers.ts'
import { commit } from '../events/commit.ts'
import type { Consumer, ConsumerPage } from '../events/consumer.ts'
import { consumerStates, moveTo } from '../events/consumer-state.ts'
import type { BriefEvent } from '../events/log-reader.ts'
import { type Head, newestHead, type Sweep, sealPage, sealSummary, sweepGap, sweepOn } from '../events/seals/seals.ts'
import { systemActor } from '../events/types.ts'
import type { WorkerWrites } from './capabilities.ts'
import { type Consumers, openConsumers } from './consumers.ts'

/** Where nothing is sealed it has nothing to say of itself. */
type Sealing = Pick<Consumers, 'stop'> & Partial<Pick<Consumers, 'readiness'>>

/** Under which the place of sealing is kept among the consumers. */
const name = 'seals'

/** Small rounds are collected: an event is sealed within ten seconds, and a seal costs as much for one event as for many. */
const paceMs = 5000

type Timing = { readonly paceMs: number; readonly lookMs: number }
const defaultTiming: Timing = { paceMs, lookMs: 2000 }

/**
 * Seals the log until stopped, however many processes do so: as a consumer of the log, and beside it what the consumer has
 * passed over. Appends each head that it finds to LOG_SEAL_FILE. With LOG_SEALS=false nothing is sealed, and the log is
 * kept for nobody.
 */
export async function openSeals(deps: WorkerWrites, timing: Partial<Timing> = {}): Promise<Sealing> {
  const { keys } = logKeys(deps.config)
  if (!deps.config.log.seals || keys === undefined) {
    deps.log.info('LOG_SEALS is false: the log is not sealed')
    await unregisterConsumer(deps, name)
    return { stop: async () => undefined }
  }
  const { paceMs, lookMs } = { ...defaultTiming, ...timing }
  const consumers = await openConsumers(deps, [sealConsumer(keys, paceMs)])
  const stopping = new AbortController()
  const looking = lookAfter(deps, keys, lookMs, stopping.signal)
  return {
    readiness: consumers.readiness,
    stop: async (waitMs) => {
      stopping.abort()
      await Promise.all([consumers.stop(waitMs), looking])
    },
  }
}

/** A wrong seal would stay wrong for ever, so the consumer halts at events that it can't seal. */
function sealConsumer(keys: LogKeys, paceMs: number): Consumer {
  let sealed = '0'
  let asked: ReturnType<typeof sealSummary> | undefined
  return {
    name,
    wants: () => {
      asked = sealSummary(sealed)
      return { brief: asked.summary }
    },
    onFailure: 'halt',
    paceMs,
    handle: async (tx, { summarized, ...page }: ConsumerPage<BriefEvent>) => {
      await sealPage(tx, keys, { ...page, leaves: asked && summarized && { ...asked, ...summarized } })
      sealed = page.events.at(-1)!.position
      return undefined
    },
  }
}

async function lookAfter(deps: WorkerWrites, keys: LogKeys, lookMs: number, stopping: AbortSignal): Promise<void> {
  const seal = <T>(work: Parameters<typeof commit<T>>[2]) => commit(deps, systemActor, work)
  const heads = deps.config.log.sealFile === undefined ? undefined : openHeadFile(deps.config.log.sealFile)
  let seen: string | undefined
  const steps = [
    // Retention went past it while no worker ran: what is left is swept up.
    async () => {
      const own = (await consumerStates(deps.db)).find((consumer) => consumer.name === name)
      if (own?.state === 'stopped') await moveTo(deps, name, 'now')
    },
    async () => {
      seen = await seal(async (tx) => ({ result: await sweepGap(tx, keys, name, seen) }))
    },
    async () => {
      for (let sweep: Sweep = { after: '0', done: false }; !sweep.done && !stopping.aborted; )
        sweep = await seal(async (tx) => ({ result: await sweepOn(tx, keys, sweep) }))
    },
    async () => {
      const head = heads && (await newestHead(deps.db))
      if (head !== undefined) await heads!.append(head)
    },
  ]
  while (!stopping.aborted) {
    for (const step of steps)
      await step().catch((error: unknown) =>
        deps.log.warn({ err: error }, 'upkeep of the seals of the log failed; it is tried again'),
      )
    await delay(lookMs, undefined, { signal: stopping }).catch(() => undefined)
  }
}

/** A file that heads are appended to, one a line, with the time at which they were. */
function openHeadFile(path: string) {
  let last: string | undefined
  return {
    append: async (head: Head): Promise<void> => {
      if (last === head.hash) return
      const file = await open(path, 'a+', 0o644)
      try {
        const { size } = await file.stat()
        const { buffer } = await file.read({
          position: Math.max(0, size - longestLine),
          buffer: Buffer.alloc(longestLine),
        })
        const text = buffer.toString('utf8').replaceAll('\0', '')
        if (!text.includes(`"hash":"${head.hash}"`)) {
          // A line that a crash has cut off stays what it is.
          const separator = text === '' || text.endsWith('\n') ? '' : '\n'
          await file.write(`${separator}${JSON.stringify({ ...head, writtenAt: new Date().toISOString() })}\n`)
          await file.sync()
        }
        last = head.hash
      } finally {
        await file.close()
      }
    },
  }
}

const longestLine = 8192
