import { setTimeout as delay } from 'node:timers/promises'
import { AppError } from '../errors.ts'
import { type Asker, asker, clientGone, lightAskedSoFar, noteMuch } from './asker.ts'
import {
  admissible,
  afterRun,
  type Cost,
  type CostPresumption,
  cheapStep,
  copyOf,
  duringRun,
  hasRoom,
  mayRefuse,
  noRush,
  type Patience,
  type PlaceCounts,
  type Places,
  type Rush,
  refusesComer,
  rushStep,
  unknownCost,
  type Weight,
  type Work,
  weightAlone,
  weightOf,
} from './step.ts'

type EntryRequest = {
  /** Work of one shape costs alike, such as a statement whatever its values. */
  readonly shape: string
  readonly presumed: CostPresumption
  /** Waits for as long as it takes: for work that has a bound of its own. */
  readonly isPatient?: boolean
}

/** A place that is held. */
export type HeldPlace = {
  /** To be called once, when the work is over. */
  leave(): void
  /** Another place for the same work, where one is free and no other work waits. */
  another(): HeldPlace | undefined
}

export type LaneStats = {
  readonly running: Readonly<Record<'light' | 'heavy', number>>
  readonly waiting: Readonly<Record<'light' | 'heavy', number>>
  /** Since the process began. */
  readonly admitted: Readonly<Record<'light' | 'heavy', number>>
  readonly refused: Readonly<Record<'light' | 'heavy', number>>
}

/** Work that shares places: at most so much of it runs at a time, a little waits, the rest is refused. */
export type Lane = {
  /**
   * A place, as soon as there is one. 503 `OVERLOADED` with `Retry-After` where it would take too long, 499 when the asker
   * is gone before. Work of an asker that holds a place already needs no further one: two that waited for each other's
   * would never end. Nor does work without an asker.
   */
  enter(entering: EntryRequest): HeldPlace | Promise<HeldPlace>
  /**
   * Rejects as `enter` would, where it would refuse this caller now: before anything is done for the request. With
   * `isHeavy`, what its work is like is not known yet, and it is taken for heavy.
   */
  turnAway(entering: EntryRequest & { readonly isHeavy?: boolean }, caller: string): Promise<void> | undefined
  stats(): LaneStats
}

/** In workers there are as many places as wanted (docs/overload.md). */
export type AdmissionLanes = {
  /** Of reads and imports that may be heavy. */
  readonly admission: Lane
  /** Of reads that are quick and share connections, and are many more at a time. */
  readonly quickReads: Lane
}

/** Does work in a place of the lane. */
export async function admitted<T>(
  lane: Lane,
  entering: EntryRequest,
  work: (place: HeldPlace) => Promise<T>,
): Promise<T> {
  const entered = lane.enter(entering)
  const place = entered instanceof Promise ? await entered : entered
  try {
    return await work(place)
  } finally {
    place.leave()
  }
}

/** Admits everything: for workers, which bound their work themselves. */
export const openDoor: Lane = {
  enter: () => freePlace,
  turnAway: () => undefined,
  stats: () => ({ running: zero, waiting: zero, admitted: zero, refused: zero }),
}

type LaneOptions = {
  readonly places: () => PlaceCounts
  /** Where all work costs alike, so that as much of it may wait as comes to its turn in time. */
  readonly patience?: Patience | undefined
  /** The message of a refusal. */
  readonly refusal: string
}

const usualPatience: Patience = { deadlineMs: 5000, foreseenMs: 5000 }
const longestLine = 1000
const rememberedShapes = 2000
const rememberedCallers = 10_000
/** How often those who wait are looked at again: work that runs may turn out to be slow. */
const tickMs = 100
/**
 * A refusal comes after a moment: refusing costs little, but not nothing, and many clients that ask again at once would
 * be all that the process does.
 */
const refusalMs = 300
const refusalsAtOnce = 2000

type RunningWork = { -readonly [Member in keyof Work]: Work[Member] } & { readonly entering: EntryRequest }
type WaitingWork = RunningWork & {
  readonly asker: Asker | undefined
  readonly admit: (place: HeldPlace) => void
  readonly refuse: (error: AppError) => void
}

/** The work in a lane; the functions below change it by what `step.ts` decides. */
type LaneState = {
  readonly places: () => PlaceCounts
  readonly patience: Patience | undefined
  readonly refusal: string
  readonly costs: Costs
  readonly running: Set<RunningWork>
  waiting: WaitingWork[]
  /** A number per caller, higher for those who have got a place later. */
  readonly servedAt: Map<string, number>
  served: number
  assessedAt: number
  /** Refusals on their way. */
  refusing: number
  timer: NodeJS.Timeout | undefined
  readonly total: Record<'admitted' | 'refused', { light: number; heavy: number }>
}

export function openLane({ places, patience, refusal }: LaneOptions): Lane {
  const state: LaneState = {
    places,
    patience,
    refusal,
    costs: openCosts(),
    running: new Set(),
    waiting: [],
    servedAt: new Map(),
    served: 0,
    assessedAt: 0,
    refusing: 0,
    timer: undefined,
    total: { admitted: { ...zero }, refused: { ...zero } },
  }
  return {
    enter: (entering) => enter(state, entering, asker()),
    turnAway: (entering, caller) => turnAway(state, entering, caller),
    stats: () => ({
      running: byKind(state.running),
      waiting: byKind(state.waiting),
      admitted: { ...state.total.admitted },
      refused: { ...state.total.refused },
    }),
  }
}

/** The costs of work by its shape, as they were seen here. */
type Costs = {
  /** `isAlone` tells whether no other run of the shape is under way; it is asked where that makes a difference. */
  assess(entering: EntryRequest, now: number, isAlone?: () => boolean): Pick<Work, 'weight' | 'expectedMs'>
  /** After a run that began at `since`. */
  ended(entering: EntryRequest, since: number, now: number): void
  /** While a run lasts that began at `since`. */
  lasts(entering: EntryRequest, since: number, now: number): void
}

function openCosts(): Costs {
  const costs = new Map<string, Cost>()
  const costOf = (shape: string): Cost => costs.get(shape) ?? unknownCost
  const learn = (shape: string, cost: Cost) => {
    costs.delete(shape)
    costs.set(shape, cost)
    if (costs.size > rememberedShapes) costs.delete(costs.keys().next().value!)
  }
  return {
    assess: ({ shape, presumed }, now, isAlone = () => false) => {
      const cost = costOf(shape)
      const weight = weightOf(cost, presumed, now)
      const alone = weightAlone(weight, presumed)
      // One slow run of what is cheap to most foretells nothing.
      const expectedMs = presumed === 'heavy' ? cost.expectedMs : 0
      return { weight: alone === weight || isAlone() ? alone : weight, expectedMs }
    },
    ended: ({ shape, presumed }, since, now) => learn(shape, afterRun(costOf(shape), presumed, since, now)),
    lasts: ({ shape, presumed }, since, now) => {
      const cost = costOf(shape)
      const next = duringRun(cost, presumed, since, now)
      if (next !== cost) learn(shape, next)
    },
  }
}

function enter(state: LaneState, entering: EntryRequest, who: Asker | undefined): HeldPlace | Promise<HeldPlace> {
  if (who === undefined ? entering.isPatient !== true : who.places > 0) return freePlace
  if (who?.gone?.aborted) return Promise.reject(clientGone())
  if (entering.presumed === 'heavy') noteMuch(who)
  const caller = who?.caller ?? ''
  const since = performance.now()
  const assessed = state.costs.assess(entering, since, isAloneIn(state, entering))
  const { isPatient = false } = entering
  const run: RunningWork = { caller, since, isPatient, entering, ...assessed }
  return state.waiting.length === 0 && hasRoom(run.weight, state.running, state.places())
    ? hold(state, run, who)
    : wait(state, run, who)
}

const isAloneIn =
  ({ running, waiting }: LaneState, { shape }: EntryRequest) =>
  (): boolean => {
    for (const { entering } of running) if (entering.shape === shape) return false
    return waiting.every(({ entering }) => entering.shape !== shape)
  }

/** Has the work run from now on. */
function begin(state: LaneState, work: RunningWork, who: Asker | undefined): HeldPlace {
  const { entering, caller, weight, isPatient } = work
  const since = performance.now()
  const { expectedMs } = state.costs.assess(entering, since)
  return hold(state, { caller, since, isPatient, entering, expectedMs, weight }, who)
}

function hold(state: LaneState, run: RunningWork, who: Asker | undefined): HeldPlace {
  const { running, servedAt, costs } = state
  const { entering, caller, weight, since } = run
  running.add(run)
  if (who !== undefined) who.places += 1
  state.served += 1
  if (servedAt.size >= rememberedCallers) servedAt.clear()
  servedAt.set(caller, state.served)
  state.total.admitted[kindOf(weight)] += 1
  return {
    leave: () => {
      if (!running.delete(run)) return
      if (who !== undefined) who.places -= 1
      costs.ended(entering, since, performance.now())
      if (state.waiting.length > 0) admitNext(state)
      else if (running.size === 0) servedAt.clear()
    },
    another: () => {
      if (state.waiting.length > 0 || !hasRoom(weight, running, state.places())) return undefined
      return begin(state, { ...run, weight }, who)
    },
  }
}

function wait(state: LaneState, run: RunningWork, who: Asker | undefined): Promise<HeldPlace> {
  return new Promise((admit, refuse) => {
    state.waiting.push({ ...run, asker: who, admit, refuse })
    const bounds = boundsOf(state)
    if (hasRoom(run.weight, state.running, bounds) || mayRefuse(state, bounds, run.since)) look(state)
    else watch(state)
  })
}

function turnAway(state: LaneState, entering: EntryRequest & { readonly isHeavy?: boolean }, caller: string) {
  if (entering.presumed === 'heavy') noteMuch(asker())
  if (state.waiting.length === 0) return undefined
  const now = performance.now()
  const { weight: assessed, expectedMs } = state.costs.assess(entering, now, isAloneIn(state, entering))
  const weight = entering.isHeavy ? 'heavy' : assessed
  if (!refusesComer(state, boundsOf(state), now, { caller, since: now, isPatient: false, weight, expectedMs }))
    return undefined
  state.total.refused[kindOf(weight)] += 1
  return aMoment(state, now).then(() => {
    throw overloaded(state.refusal, expectedMs)
  })
}

function boundsOf({ places, patience }: LaneState): Places {
  const { all, heavy, quick } = places()
  const heavyLine = patience === undefined ? 2 * heavy : longestLine
  return { all, heavy, quick, heavyLine, line: longestLine, ...(patience ?? usualPatience) }
}

/** Looks at all waiting work: some may have just come, some may have waited too long. */
function look(state: LaneState): void {
  const now = performance.now()
  leaveGone(state)
  reassess(state, now)
  const { admitted, refused } = cheapStep(state, boundsOf(state), now)
  admit(state, admitted)
  refuse(state, refused)
  watch(state)
}

/** A place has become free. That is no reason to refuse any work. */
function admitNext(state: LaneState): void {
  leaveGone(state)
  reassess(state, performance.now())
  admit(state, admissible(copyOf(state), state.places()))
}

/** Work that runs, or has run meanwhile, shows what its like costs; once a tick is often enough to see it. */
function reassess(state: LaneState, now: number): void {
  const { costs, running, waiting } = state
  if (now - state.assessedAt < tickMs) return
  state.assessedAt = now
  const underWay = new Set<string>()
  for (const run of running) {
    costs.lasts(run.entering, run.since, now)
    Object.assign(run, costs.assess(run.entering, now))
    underWay.add(run.entering.shape)
  }
  for (const work of waiting) {
    const { shape } = work.entering
    Object.assign(
      work,
      costs.assess(work.entering, now, () => !underWay.has(shape)),
    )
    underWay.add(shape)
  }
}

function admit(state: LaneState, works: readonly WaitingWork[]): void {
  remove(state, works)
  for (const work of works) work.admit(begin(state, work, work.asker))
}

function refuse(state: LaneState, works: readonly WaitingWork[]): void {
  remove(state, works)
  for (const { refuse, weight, expectedMs, since } of works) {
    state.total.refused[kindOf(weight)] += 1
    const error = overloaded(state.refusal, expectedMs)
    void aMoment(state, since).then(() => refuse(error))
  }
}

function leaveGone(state: LaneState): void {
  const gone = state.waiting.filter(({ asker: who }) => who?.gone?.aborted === true)
  remove(state, gone)
  for (const { refuse } of gone) refuse(clientGone())
}

function remove(state: LaneState, works: readonly WaitingWork[]): void {
  if (works.length === 1) state.waiting.splice(state.waiting.indexOf(works[0]!), 1)
  else if (works.length > 1) {
    const gone = new Set(works)
    state.waiting = state.waiting.filter((work) => !gone.has(work))
  }
}

/** The timer outlives short waits: most of them end before it is due. */
function watch(state: LaneState): void {
  state.timer ??= setInterval(() => {
    if (state.waiting.length > 0) return look(state)
    clearInterval(state.timer)
    state.timer = undefined
  }, tickMs).unref()
}

/** Waits until work that came at `since` has waited for {@link refusalMs}. */
async function aMoment(state: LaneState, since: number): Promise<void> {
  const leftMs = since + refusalMs - performance.now()
  if (leftMs <= 0 || state.refusing >= refusalsAtOnce) return
  state.refusing += 1
  await delay(leftMs)
  state.refusing -= 1
}

/** `Retry-After` is the time in which as much work is done, within reason. */
function overloaded(message: string, expectedMs: number): AppError {
  const seconds = Math.min(30, Math.max(1, Math.ceil(expectedMs / 1000)))
  return new AppError(503, message, { code: 'OVERLOADED', headers: { 'retry-after': String(seconds) } })
}

const freePlace: HeldPlace = { leave: () => undefined, another: () => undefined }

const zero = { light: 0, heavy: 0 }

const kindOf = (weight: Weight): 'light' | 'heavy' => (weight === 'cheap' ? 'light' : 'heavy')

function byKind(works: Iterable<Work>) {
  const heavy = count(works, ({ weight }) => weight !== 'cheap')
  const all = count(works, () => true)
  return { light: all - heavy, heavy }
}

function count<W>(works: Iterable<W>, counts: (work: W) => boolean): number {
  let found = 0
  for (const work of works) if (counts(work)) found += 1
  return found
}

/** How much that is light is asked for in this process. */
export function rushNow(): Rush {
  rush = rushStep(rush, { now: performance.now(), asked: lightAskedSoFar() })
  return rush
}

let rush: Rush = noRush
