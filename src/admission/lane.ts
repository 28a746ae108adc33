import { setTimeout as delay } from 'node:timers/promises'
import { type Asker, asker } from '../asker.ts'
import { clientGone } from '../db/cancel.ts'
import { AppError } from '../errors.ts'
import { afterRun, type Cost, duringRun, type Presumed, unknownCost, weightOf } from './costs.ts'
import { type Places, step, type Weight, type Work } from './step.ts'

export type Entering = {
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

export type LaneOptions = {
  readonly places: () => Pick<Places, 'all' | 'heavy'>
  /** What somebody is told who is refused. */
  readonly refusal: string
}

const deadlineMs = 5000
const longestLine = 1000
const rememberedShapes = 2000
const rememberedCallers = 10_000
/** How often those who wait are looked at again: work that runs may turn out to be slow. */
const tickMs = 100
/**
 * Who asks again at once is told after a moment: refusing costs little, but not nothing, and many who do so together would
 * be all that the process does.
 */
const refusalMs = 300
const refusalsAtOnce = 2000

type Running = { -readonly [Member in keyof Work]: Work[Member] } & { readonly entering: Entering }
type Waiting = Work & {
  readonly entering: Entering
  readonly asker: Asker | undefined
  readonly admit: (place: Place) => void
  readonly refuse: (error: AppError) => void
}

export function openLane({ places, refusal }: LaneOptions): Lane {
  const costs = new Map<string, Cost>()
  const running = new Set<Running>()
  let waiting: Waiting[] = []
  const servedAt = new Map<string, number>()
  let served = 0
  let timer: NodeJS.Timeout | undefined
  let refusing = 0
  const total = { admitted: { ...zero }, refused: { ...zero } }

  const costOf = (shape: string): Cost => costs.get(shape) ?? unknownCost
  const learn = (shape: string, cost: Cost) => {
    costs.delete(shape)
    costs.set(shape, cost)
    if (costs.size > rememberedShapes) costs.delete(costs.keys().next().value!)
  }
  const bounds = (): Places => {
    const { all, heavy } = places()
    return { all, heavy, heavyLine: 2 * heavy, line: longestLine, deadlineMs }
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
        if (waiting.length > 0) look()
        else if (running.size === 0) servedAt.clear()
      },
      another: () => {
        if (waiting.length > 0 || !hasRoom(weight)) return undefined
        return hold(entering, caller, weight, who)
      },
    }
  }

  const hasRoom = (weight: Weight): boolean => {
    const { all, heavy } = places()
    if (running.size >= all) return false
    return weight === 'cheap' || count(running, ({ weight: other }) => other !== 'cheap') < heavy
  }

  /** Whoever waits and runs is looked at again. */
  const look = () => {
    const now = performance.now()
    for (const run of running) {
      const { shape, presumed } = run.entering
      const cost = costOf(shape)
      const next = duringRun(cost, presumed, run.since, now)
      if (next !== cost) learn(shape, next)
      Object.assign(run, assess(run.entering, now))
    }
    waiting = waiting.map((work) => ({ ...work, ...assess(work.entering, now) }))
    const { admitted, refused } = step({ running: [...running], waiting, servedAt }, bounds(), now)
    const gone = new Set<Waiting>([...admitted, ...refused])
    if (gone.size > 0) waiting = waiting.filter((work) => !gone.has(work))
    for (const { admit, entering, caller, weight, asker: who } of admitted) admit(hold(entering, caller, weight, who))
    for (const { refuse, weight, expectedMs } of refused) {
      total.refused[kindOf(weight)] += 1
      refuse(overloaded(refusal, expectedMs))
    }
    watch()
  }

  const watch = () => {
    if (waiting.length > 0) timer ??= setInterval(look, tickMs).unref()
    else {
      clearInterval(timer)
      timer = undefined
    }
  }

  const afterMoment = async () => {
    if (refusing >= refusalsAtOnce) return
    refusing += 1
    await delay(refusalMs)
    refusing -= 1
  }

  const wait = (entering: Entering, caller: string, who: Asker | undefined): Promise<Place> =>
    new Promise((resolve, reject) => {
      const gone = who?.gone
      const { isPatient = false } = entering
      const settled = () => gone?.removeEventListener('abort', leave)
      const leave = () => {
        waiting = waiting.filter(({ refuse: other }) => other !== refuse)
        watch()
        reject(clientGone())
      }
      const refuse = (error: AppError) => {
        void afterMoment().then(() => {
          settled()
          reject(error)
        })
      }
      const admit = (place: Place) => {
        settled()
        resolve(place)
      }
      gone?.addEventListener('abort', leave, { once: true })
      const since = performance.now()
      const assessed = assess(entering, since)
      waiting.push({ caller, since, isPatient, entering, asker: who, admit, refuse, ...assessed })
      look()
    })

  return {
    enter: (entering) => {
      const who = asker()
      if (who === undefined ? entering.isPatient !== true : who.places > 0) return freePlace
      if (who?.gone?.aborted) return Promise.reject(clientGone())
      const caller = who?.caller ?? ''
      const { weight } = assess(entering, performance.now())
      return waiting.length === 0 && hasRoom(weight) ? hold(entering, caller, weight, who) : wait(entering, caller, who)
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
      const standing = { running: [...running], waiting: [...waiting, comer], servedAt }
      if (!step<Work>(standing, bounds(), now).refused.includes(comer)) return undefined
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
