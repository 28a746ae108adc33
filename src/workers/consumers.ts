import { setTimeout as delay } from 'node:timers/promises'
import { openFailures } from '../adapters/failures.ts'
import { pauseAfter } from '../adapters/retry.ts'
import { logTable } from '../catalog/log-triggers.ts'
import type { Listening } from '../db/listener.ts'
import {
  claimConsumers,
  type HeldConsumer,
  logRemoved,
  positionsToRetry,
  registerConsumers,
  releaseConsumers,
  renewConsumers,
  stopConsumer,
} from '../db/unlogged/consumers.ts'
import {
  type Consumer,
  type ConsumerHold,
  type ConsumerState,
  type ConsumerWrites,
  consumerStates,
  handleNext,
  handleSetAside,
  heldFrom,
  isAhead,
  keepPlace,
  type PageOutcome,
} from '../events/consumer.ts'
import { currentCursor } from '../events/log-reader.ts'
import { openWakeup, within } from './wakeup.ts'

export type Consumers = {
  /** Works for these from now on, and for no others. */
  serve(consumers: readonly Consumer[]): Promise<void>
  stop(waitMs: number): Promise<void>
  /** Whether each can go on and keeps up, whichever process works for it. */
  readiness(): Promise<Readonly<Record<string, ConsumerReadiness>>>
}

type ConsumerReadiness = Pick<ConsumerState, 'state' | 'reason' | 'lagSeconds' | 'setAside'> & { readonly ok: boolean }

type Timing = {
  /** A process that has not renewed for this long is succeeded. */
  readonly leaseMs: number
  /** How often the log is looked at for something new, where a consumer has no pace of its own. */
  readonly lookMs: number
  /** A place that moves past nothing that is wanted is kept this often. */
  readonly keepMs: number
}

const defaultTiming: Timing = { leaseMs: 6000, lookMs: 200, keepMs: 5000 }

/**
 * Works for consumers of the log until stopped, for each that no other process works for; of several processes the others
 * take over within the time of a lease. A consumer that was never seen before begins with what happens from now on.
 */
export async function openConsumers(
  deps: ConsumerWrites & Listening,
  consumers: readonly Consumer[],
  timing: Partial<Timing> = {},
): Promise<Consumers> {
  const shell: Shell = {
    deps,
    timing: { ...defaultTiming, ...timing },
    places: [],
    holder: `${process.pid}`,
    log: { position: '', changedAt: performance.now() },
    watching: openWakeup(),
    stopping: new AbortController(),
    work: new Set(),
  }
  const serve = (wanted: readonly Consumer[]) => serveConsumers(shell, wanted)
  deps.listener.onLost(() => {
    for (const place of shell.places) {
      place.isDoubtful = true
      place.wakeup.wake()
    }
  })
  await serve(consumers)
  const work = Promise.all([hold(shell), watchLog(shell)])
  return {
    serve,
    stop: (waitMs) => stop(shell, work, waitMs),
    readiness: () =>
      readinessOf(
        deps,
        shell.places.map(({ consumer }) => consumer.name),
      ),
  }
}

async function serveConsumers(shell: Shell, wanted: readonly Consumer[]): Promise<void> {
  const { deps, places } = shell
  const names = wanted.map(({ name }) => name)
  const left = places.filter(({ consumer }) => !names.includes(consumer.name))
  for (const place of left) place.isLeft = true
  shell.places = places.filter(({ isLeft }) => !isLeft)
  await release(deps, left)
  for (const consumer of wanted) {
    const known = shell.places.find((place) => place.consumer.name === consumer.name)
    if (known !== undefined) known.consumer = consumer
  }
  const added = wanted.filter(({ name }) => !shell.places.some(({ consumer }) => consumer.name === name))
  if (added.length === 0) return
  const from = await currentCursor(deps.db)
  const registered = await registerConsumers(
    deps,
    added.map(({ name }) => name),
    from.snapshot,
  )
  if (registered.length > 0) deps.log.info({ consumers: registered }, 'consumers begin to follow the log')
  for (const consumer of added) {
    const place: ConsumerRun = {
      ...{ consumer, wakeup: openWakeup(), held: undefined },
      ...{ retries: false, isLeft: false, isDoubtful: false },
    }
    shell.places = [...shell.places, place]
    const following = follow(shell, place).finally(() => shell.work.delete(following))
    shell.work.add(following)
  }
  shell.watching.wake()
}

/** Longer behind than this is a reason to look. */
const latestSeconds = 300

async function readinessOf({ db }: ConsumerWrites, names: readonly string[]) {
  const states = (await consumerStates(db)).filter(({ name }) => names.includes(name))
  return Object.fromEntries(
    states.map(({ name, state, reason, lagSeconds, setAside }) => {
      const ok = state === 'paused' || (state === 'running' && lagSeconds < latestSeconds)
      return [name, { ok, state, reason, lagSeconds, setAside }]
    }),
  )
}

type Shell = {
  readonly deps: ConsumerWrites
  readonly timing: Timing
  places: readonly ConsumerRun[]
  readonly holder: string
  /** The newest position that was given out, and since when it is known. */
  readonly log: { position: string; changedAt: number }
  /** Wakes the look at the log. */
  readonly watching: ReturnType<typeof openWakeup>
  readonly stopping: AbortController
  /** One for each place. */
  readonly work: Set<Promise<void>>
}

/** A consumer, and what this process has of it. */
type ConsumerRun = {
  consumer: Consumer
  readonly wakeup: ReturnType<typeof openWakeup>
  held: ConsumerHold | undefined
  /** Something that was set aside is to be tried again. */
  retries: boolean
  /** Not served any more. */
  isLeft: boolean
  /** The server may have crashed: what was read beyond the place that is kept may not have happened. */
  isDoubtful: boolean
}

async function stop(shell: Shell, ended: Promise<unknown>, waitMs: number): Promise<void> {
  const { deps, places, stopping, work } = shell
  stopping.abort()
  for (const { wakeup } of [...places, { wakeup: shell.watching }]) wakeup.wake()
  await within(waitMs, Promise.all([ended, ...work]))
  await release(deps, places)
}

async function release(deps: ConsumerWrites, places: readonly ConsumerRun[]): Promise<void> {
  const leases = places.flatMap(({ held }) => (held === undefined ? [] : [held.lease]))
  try {
    if (leases.length > 0) await releaseConsumers(deps, leases)
  } catch (error) {
    deps.log.warn({ err: error }, 'consumers could not be given up; others take over when their leases have ended')
  }
}

/** Renews what this process holds, and takes what no process does. */
async function hold(shell: Shell): Promise<void> {
  const { deps, timing, stopping } = shell
  const failures = openFailures(deps, 'the leases of consumers could not be renewed', {
    get consumers() {
      return shell.places.map(({ consumer }) => consumer.name)
    },
  })
  while (!stopping.signal.aborted) {
    try {
      await renew(shell)
      const free = shell.places.filter(({ held }) => held === undefined).map(({ consumer }) => consumer.name)
      const claimed = free.length === 0 ? [] : await claimConsumers(deps, free, shell.holder, timing.leaseMs)
      for (const row of claimed) take(placeOf(shell, row), row)
      if (claimed.length > 0) deps.log.info({ consumers: claimed.map(({ name }) => name) }, 'consumers were taken')
      failures.worked()
    } catch (error) {
      failures.failed(error)
    }
    await pause(shell, timing.leaseMs / 4)
  }
}

async function renew(shell: Shell): Promise<void> {
  const { deps, timing, places } = shell
  const before = places.filter(({ held }) => held !== undefined)
  if (before.length === 0) return
  const leases = before.map(({ held }) => held!.lease)
  const renewed = await renewConsumers(deps, leases, timing.leaseMs)
  for (const [i, place] of before.entries()) {
    const row = renewed.find(({ token }) => token === leases[i]!.token)
    if (row === undefined && place.held?.lease === leases[i]) lose(shell, place)
    else if (row?.retries) retry(place)
  }
}

const placeOf = ({ places }: Shell, { name }: HeldConsumer) => places.find(({ consumer }) => consumer.name === name)

function take(place: ConsumerRun | undefined, row: HeldConsumer): void {
  // Left meanwhile: its lease ends by itself.
  if (place === undefined) return
  place.held = heldFrom(row)
  place.retries = row.retries
  place.wakeup.wake()
}

function retry(place: ConsumerRun): void {
  place.retries = true
  place.wakeup.wake()
}

function lose({ deps }: Shell, place: ConsumerRun): void {
  place.held = undefined
  deps.log.warn({ consumer: place.consumer.name }, 'another process serves the consumer, or somebody moved it')
}

/**
 * Wakes the consumers when something may have been appended: positions are given out before their events can be seen,
 * so a change is reason to look until it has been quiet for a while. It costs the log nothing, and needs no slot of
 * the WAL for every process.
 */
async function watchLog(shell: Shell): Promise<void> {
  const { deps, log, stopping } = shell
  while (!stopping.signal.aborted) {
    try {
      const [row] = await deps.db.run<{ position: string }>(newestSql, [], 'prepared')
      if (row!.position !== log.position) Object.assign(log, { position: row!.position, changedAt: performance.now() })
      if (performance.now() - log.changedAt < attentiveMs) for (const { wakeup } of shell.places) wakeup.wake()
    } catch (error) {
      deps.log.debug({ err: error }, 'the log could not be looked at')
    }
    await shell.watching.wait(untilNextLook(shell))
  }
}

/** Nothing that is written is urgent where every consumer has a pace, or where there is none. */
function untilNextLook({ places, timing }: Shell): number {
  return Math.min(unhurriedMs, ...places.map(({ consumer: { paceMs } }) => paceMs ?? timing.lookMs))
}

const newestSql = `select last_value::text as position from "${logTable}_position"`
const attentiveMs = 1000
const unhurriedMs = 5000
/** A transaction may take long between its events and its commit. */
const unwokenMs = 1000
const backoff = { firstMs: 100, longestMs: 5000 }

async function follow(shell: Shell, place: ConsumerRun): Promise<void> {
  const { deps, stopping } = shell
  const kept = { at: performance.now(), log: '' }
  const about = { consumer: place.consumer.name }
  const failures = openFailures(deps, 'a consumer could not go on; it tries again', about)
  while (!stopping.signal.aborted && !place.isLeft) {
    try {
      const isDone = await advance(shell, place, kept)
      // One that this process does not hold has shown nothing.
      if (place.held !== undefined) failures.worked()
      if (isDone) await rest(shell, place)
    } catch (error) {
      await pause(shell, pauseAfter(failures.failed(error), backoff))
      // A page that takes longer than a transaction may is passed in smaller ones.
      await readAgain(shell, place, 4)
    }
  }
}

/** Until something happens; for a consumer with a pace, its time. */
function rest(shell: Shell, { consumer: { paceMs }, wakeup }: ConsumerRun): Promise<void> {
  return paceMs === undefined ? wakeup.wait(unwokenMs) : pause(shell, paceMs)
}

/** Whether the last page was handled is unknown here: its stored place shows it. */
async function readAgain({ deps, timing }: Shell, place: ConsumerRun, smaller = 1): Promise<void> {
  const { held } = place
  if (held === undefined) return
  try {
    const [row] = await renewConsumers(deps, [held.lease], timing.leaseMs)
    place.held = row && { ...heldFrom(row), limit: Math.max(1, Math.floor(held.limit / smaller)) }
  } catch (error) {
    place.held = undefined
    deps.log.debug({ err: error, consumer: place.consumer.name }, 'the place of a consumer could not be read')
  }
}

type CursorNote = { at: number; log: string }

/** True when there is nothing to do until something happens. */
async function advance(shell: Shell, place: ConsumerRun, kept: CursorNote): Promise<boolean> {
  const { deps } = shell
  if (place.isDoubtful) {
    place.isDoubtful = false
    await readAgain(shell, place)
  }
  const { consumer, held } = place
  if (held === undefined) return true
  if (place.retries) await handleRetries(shell, place, held)
  const progress = await handleNext(deps, consumer, held)
  // Somebody else may hold it by now, or it was stopped in between: then this says nothing any more.
  if (place.held !== held) return false
  switch (progress.is) {
    case 'handled':
      place.held = progress.held
      if (!progress.more) await keepSometimes(shell, place, progress.held, kept)
      return !progress.more
    case 'read-again':
      place.held = progress.held
      return false
    case 'lost':
      lose(shell, place)
      return true
    default:
      // A crash may have taken back what a place in memory names; the one that is kept has survived it.
      if (progress.is === 'gone' && isAhead(held)) place.isDoubtful = true
      else await end(shell, place, progress)
      return !place.isDoubtful
  }
}

async function handleRetries({ deps }: Shell, place: ConsumerRun, held: ConsumerHold): Promise<void> {
  const positions = await positionsToRetry(deps, place.consumer.name, mostRetries)
  for (const position of positions) await handleSetAside(deps, place.consumer, held, position)
  place.retries = positions.length === mostRetries
}

const mostRetries = 100

/** Not while nothing is written: then the place that is kept is as good as the newest, and the server may rest. */
async function keepSometimes(
  { deps, timing, log }: Shell,
  place: ConsumerRun,
  held: ConsumerHold,
  kept: CursorNote,
): Promise<void> {
  const waited = performance.now() - kept.at
  const isDue = waited > (kept.log === log.position ? rarelyMs : timing.keepMs)
  if (!isDue || !isAhead(held)) return
  const position = log.position
  const next = await keepPlace(deps, held)
  if (next === undefined) place.held = undefined
  else place.held = next
  Object.assign(kept, { at: performance.now(), log: position })
}

/** Where the log is at rest: so that the numbers of the transactions of a place do not grow old without end. */
const rarelyMs = 600_000

async function end(
  { deps }: Shell,
  place: ConsumerRun,
  progress: Extract<PageOutcome, { is: 'failed' | 'gone' }>,
): Promise<void> {
  const { held, consumer } = place
  place.held = undefined
  if (progress.is === 'gone') {
    deps.log.error({ consumer: consumer.name }, 'a consumer has stopped: the log does not reach back to its place')
    return stopConsumer(deps, held!.lease, 'stopped', { reason: logRemoved })
  }
  const { position: failedPosition, reason } = progress
  deps.log.error(
    { consumer: consumer.name, position: failedPosition },
    'a consumer has halted before an event that fails',
  )
  if ((await keepPlace(deps, progress.held)) !== undefined)
    await stopConsumer(deps, held!.lease, 'halted', { reason, failedPosition })
}

function pause({ stopping }: Shell, ms: number): Promise<void> {
  return delay(ms, undefined, { signal: stopping.signal }).catch(() => undefined)
}
