import { setTimeout as delay } from 'node:timers/promises'
import { AppError } from '../errors.ts'
import { type Asker, asker, clientGone } from './asker.ts'
import {
  admissible,
  afterRun,
  type Cost,
  duringRun,
  hasRoom,
  mayRefuse,
  type Places,
  type Presumed,
  type Room,
  step,
  unknownCost,
  type Weight,
  type Work,
  weightOf,
} from './step.ts'

type Entering = {
  /** Work of one shape costs alike, such as a statement whatever its values. */
  readonly shape: string
  readonly presumed: Presumed
  /** Waits for as long as it takes: for work that has a bound of its own. */
  readonly isPatient?: boolean
}

/** A place that is held. */
export type Place = {
  /** To be called once, when the work is over. */
  leave(): void
  /** Another place for the same work, where one is free and nobody waits. */
  another(): Place | undefined
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
   * would never end. Nor does work that nobody asks for.
   */
  enter(entering: Entering): Place | Promise<Place>
  /**
   * Rejects as `enter` would, where it would refuse this caller now: before anything is done for the request. With
   * `isHeavy`, what its work is like is not known yet, and it is taken for heavy.
   */
  turnAway(entering: Entering & { readonly isHeavy?: boolean }, caller: string): Promise<void> | undefined
  stats(): LaneStats
}

/** The places of reads and imports that may be heavy (docs/overload.md); in workers there are as many as wanted. */
export type AdmissionLane = { readonly admission: Lane }

/** Does work in a place of the lane. */
export async function admitted<T>(lane: Lane, entering: Entering, work: (place: Place) => Promise<T>): Promise<T> {
  const entered = lane.enter(entering)
  const place = entered instanceof Promise ? await entered : entered
  try {
    return await work(place)
  } finally {
    place.leave()
  }
}

/** Where nobody is refused: in workers, which bound their work themselves. */
export const openDoor: Lane = {
  enter: () => freePlace,
  turnAway: () => undefined,
  stats: () => ({ running: zero, waiting: zero, admitted: zero, refused: zero }),
}

type LaneOptions = {
  readonly places: () => Room
  /** How much work may wait, where all of it costs alike; else it depends on how heavy it is. */
  readonly longestLine?: number
  /** What somebody is told who is refused. */
  readonly refusal: string
}

const deadlineMs = 5000
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

type Running = { -readonly [Member in keyof Work]: Work[Member] } & { readonly entering: Entering }
type Waiting = Running & {
  readonly asker: Asker | undefined
  readonly admit: (place: Place) => void
  readonly refuse: (error: AppError) => void
}

export function openLane({ places, longestLine, refusal }: LaneOptions): Lane {
  const costs = new Map<string, Cost>()
  const running = new Set<Running>()
  let waiting: Waiting[] = []
  const servedAt = new Map<string, number>()
  let served = 0
  let timer: NodeJS.Timeout | undefined
  let assessedAt = 0
  let refusing = 0
  const total = { admitted: { ...zero }, refused: { ...zero } }

  const costOf = (shape: string): Cost => costs.get(shape) ?? unknownCost
  const learn = (shape: string, cost: Cost) => {
    costs.delete(shape)
    costs.set(shape, cost)
    if (costs.size > rememberedShapes) costs.delete(costs.keys().next().value!)
  }
  const bounds = (): Places => {
    const { all, heavy, quick } = places()
    return { all, heavy, quick, heavyLine: longestLine ?? 2 * heavy, line: longestLine ?? 1000, deadlineMs }
  }
  const assess = ({ shape, presumed }: Entering, now: number) => {
    const cost = costOf(shape)
    // One slow run of what is cheap to most foretells nothing.
    return { weight: weightOf(cost, presumed, now), expectedMs: presumed === 'heavy' ? (cost.ms ?? 0) : 0 }
  }

  const hold = (entering: Entering, caller: string, weight: Weight, who: Asker | undefined): Place => {
    const since = performance.now()
    const { shape, presumed, isPatient = false } = entering
    const run: Running = { caller, since, isPatient, entering, ...assess(entering, since), weight }
    running.add(run)
    if (who !== undefined) who.places += 1
    served += 1
    if (servedAt.size >= rememberedCallers) servedAt.clear()
    servedAt.set(caller, served)
    total.admitted[kindOf(weight)] += 1
    return {
      leave: () => {
        if (!running.delete(run)) return
        if (who !== undefined) who.places -= 1
        learn(shape, afterRun(costOf(shape), presumed, since, performance.now()))
        if (waiting.length > 0) admitNext()
        else if (running.size === 0) servedAt.clear()
      },
      another: () => {
        if (waiting.length > 0 || !hasRoom(weight, running, places())) return undefined
        return hold(entering, caller, weight, who)
      },
    }
  }

  /** Work that runs, or has run meanwhile, shows what its like costs; once a tick is often enough to see it. */
  const reassess = (now: number) => {
    if (now - assessedAt < tickMs) return
    assessedAt = now
    for (const run of running) {
      const { shape, presumed } = run.entering
      const cost = costOf(shape)
      const next = duringRun(cost, presumed, run.since, now)
      if (next !== cost) learn(shape, next)
      Object.assign(run, assess(run.entering, now))
    }
    for (const work of waiting) Object.assign(work, assess(work.entering, now))
  }

  const standing = () => ({ running: [...running], waiting, servedAt })

  const look = () => {
    const now = performance.now()
    leaveGone()
    reassess(now)
    const bound = bounds()
    const mayEnd = mayRefuse({ running, waiting }, bound, now)
    const { admitted, refused } = mayEnd
      ? step(standing(), bound, now)
      : { admitted: admissible(standing(), bound), refused: [] }
    admit(admitted)
    refuse(refused)
    watch()
  }

  /** A place has become free: nobody is refused for that. */
  const admitNext = () => {
    leaveGone()
    reassess(performance.now())
    admit(admissible(standing(), places()))
  }

  const admit = (works: readonly Waiting[]) => {
    remove(works)
    for (const { admit, entering, caller, weight, asker: who } of works) admit(hold(entering, caller, weight, who))
  }

  const refuse = (works: readonly Waiting[]) => {
    remove(works)
    for (const { refuse, weight, expectedMs } of works) {
      total.refused[kindOf(weight)] += 1
      const error = overloaded(refusal, expectedMs)
      void afterMoment().then(() => refuse(error))
    }
  }

  const leaveGone = () => {
    const gone = waiting.filter(({ asker: who }) => who?.gone?.aborted === true)
    remove(gone)
    for (const { refuse } of gone) refuse(clientGone())
  }

  const remove = (works: readonly Waiting[]) => {
    if (works.length === 1) waiting.splice(waiting.indexOf(works[0]!), 1)
    else if (works.length > 1) {
      const gone = new Set(works)
      waiting = waiting.filter((work) => !gone.has(work))
    }
  }

  /** The timer outlives short waits: most of them end before it is due. */
  const watch = () => {
    timer ??= setInterval(() => {
      if (waiting.length > 0) return look()
      clearInterval(timer)
      timer = undefined
    }, tickMs).unref()
  }

  const afterMoment = async () => {
    if (refusing >= refusalsAtOnce) return
    refusing += 1
    await delay(refusalMs)
    refusing -= 1
  }

  const wait = (entering: Entering, caller: string, who: Asker | undefined): Promise<Place> =>
    new Promise((admit, refuse) => {
      const since = performance.now()
      const { isPatient = false } = entering
      const { weight, expectedMs } = assess(entering, since)
      waiting.push({ caller, since, isPatient, entering, weight, expectedMs, asker: who, admit, refuse })
      const now = bounds()
      if (hasRoom(weight, running, now) || mayRefuse({ running, waiting }, now, since)) look()
      else watch()
    })

  return {
    enter: (entering) => {
      const who = asker()
      if (who === undefined ? entering.isPatient !== true : who.places > 0) return freePlace
      if (who?.gone?.aborted) return Promise.reject(clientGone())
      const caller = who?.caller ?? ''
      const { weight } = assess(entering, performance.now())
      return waiting.length === 0 && hasRoom(weight, running, places())
        ? hold(entering, caller, weight, who)
        : wait(entering, caller, who)
    },
    turnAway: (entering, caller) => {
      if (waiting.length === 0) return undefined
      const now = performance.now()
      const { weight, expectedMs } = assess(entering, now)
      const comer: Work = {
        caller,
        since: now,
        isPatient: false,
        weight: entering.isHeavy ? 'heavy' : weight,
        expectedMs,
      }
      const bound = bounds()
      if (!mayRefuse({ running, waiting }, bound, now, comer)) return undefined
      const withComer = { ...standing(), waiting: [...waiting, comer] }
      if (!step<Work>(withComer, bound, now).refused.includes(comer)) return undefined
      total.refused[kindOf(comer.weight)] += 1
      return afterMoment().then(() => {
        throw overloaded(refusal, expectedMs)
      })
    },
    stats: () => ({
      running: byKind(running),
      waiting: byKind(waiting),
      admitted: { ...total.admitted },
      refused: { ...total.refused },
    }),
  }
}

/** `Retry-After` is the time in which as much work is done, within reason. */
function overloaded(message: string, expectedMs: number): AppError {
  const seconds = Math.min(30, Math.max(1, Math.ceil(expectedMs / 1000)))
  return new AppError(503, message, { code: 'OVERLOADED', headers: { 'retry-after': String(seconds) } })
}

const freePlace: Place = { leave: () => undefined, another: () => undefined }

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
