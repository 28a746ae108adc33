import { describe, expect, it } from 'vitest'
import { type Asker, lightAskedSoFar, workFor } from '../../src/admission/asker.ts'
import { admitted, type HeldPlace, openLane } from '../../src/admission/lane.ts'
import {
  afterRun,
  cheapStep,
  duringRun,
  hashesAtOnce,
  mayRefuse,
  noRush,
  type Places,
  patienceOfHashes,
  placesNow,
  type Rush,
  readPlaces,
  refusesComer,
  rushStep,
  step,
  unknownCost,
  type Weight,
  type Work,
  weightAlone,
  weightOf,
} from '../../src/admission/step.ts'
import { waitFor } from '../support/wait.ts'

const places: Places = { all: 4, heavy: 2, quick: 3, heavyLine: 4, line: 100, deadlineMs: 5000, foreseenMs: 5000 }
const nobodyServed = new Map<string, number>()

const work = (caller: string, more: Partial<Work> = {}): Work => ({
  caller,
  weight: 'heavy',
  since: 0,
  expectedMs: 0,
  isPatient: false,
  ...more,
})
const many = (amount: number, caller: string, more: Partial<Work> = {}) =>
  Array.from({ length: amount }, (_, i) => work(caller, { since: i, ...more }))
const stepOf = (running: Work[], waiting: Work[], now = 10, servedAt: ReadonlyMap<string, number> = nobodyServed) =>
  step({ running, waiting, servedAt }, places, now)

describe('a step', () => {
  it('fills the places of heavy work, lets as much wait as fits the line, and refuses the rest', () => {
    const waiting = many(9, 'a')
    const { admitted, refused } = stepOf([], waiting)
    expect(admitted).toEqual(waiting.slice(0, 2))
    expect(refused).toEqual(waiting.slice(6))
  })

  it('gives cheap work the places that heavy work may not have', () => {
    const cheap = many(3, 'b', { weight: 'cheap', since: 20 })
    const { admitted, refused } = stepOf([], [...many(6, 'a'), ...cheap], 30)
    expect(admitted.filter(({ weight }) => weight === 'cheap')).toEqual(cheap.slice(0, 2))
    expect(admitted).toHaveLength(4)
    expect(refused).toEqual([])
  })

  it('does not refuse for its length what may be heavy or not', () => {
    const { admitted, refused } = stepOf([], many(30, 'a', { weight: 'doubtful' }))
    expect([admitted.length, refused]).toEqual([2, []])
  })

  it('leaves one place to what is cheap, however quick the rest is', () => {
    const waiting = [...many(6, 'a', { weight: 'quick' }), work('b', { weight: 'cheap', since: 20 })]
    const { admitted, refused } = stepOf([], waiting, 30)
    expect(admitted.map(({ weight }) => weight)).toEqual(['quick', 'cheap', 'quick', 'quick'])
    expect(refused).toEqual([])
    expect(stepOf(many(2, 'c'), waiting.slice(0, 6), 30).admitted).toHaveLength(1)
  })

  it('gives a trial any place but one', () => {
    const heavy = many(2, 'a')
    const trials = many(3, 'b', { weight: 'trial' })
    expect(stepOf(heavy, trials).admitted).toEqual(trials.slice(0, 1))
    expect(stepOf([...heavy, trials[0]!], [work('c', { weight: 'cheap' })]).admitted).toHaveLength(1)
  })

  it('refuses no one where a glance says that it may not', () => {
    const weights: Weight[] = ['cheap', 'quick', 'trial', 'doubtful', 'heavy']
    let glances = 0
    for (let seed = 1; seed <= 3000; seed += 1) {
      const random = (below: number, salt: number) => ((seed * 2654435761 + salt * 40503) >>> 7) % below
      const some = (amount: number, salt: number) =>
        Array.from({ length: amount }, (_, i) =>
          work(`c${random(3, salt + i)}`, {
            weight: weights[random(4, salt + 7 * i)]!,
            since: i * random(900, salt),
            expectedMs: random(4, salt + i) * random(500, salt + 3 * i),
            isPatient: random(5, salt + i) === 0,
          }),
        )
      const [running, waiting] = [some(random(5, 1), 2), some(random(9, 3), 4)]
      const now = 5000 + random(4000, 5)
      const comer = { ...some(1, 6)[0]!, since: now }
      const standing = { running, waiting: [...waiting, comer], servedAt: nobodyServed }
      if (mayRefuse({ running, waiting }, places, now, comer)) continue
      glances += 1
      expect(step(standing, places, now).refused).toEqual([])
    }
    expect(glances).toBeGreaterThan(300)
  })

  it('lets callers take turns: who floods the line is the one whose work goes', () => {
    const flood = many(4, 'a')
    const other = work('b', { since: 9 })
    const { admitted, refused } = stepOf(many(2, 'a'), [...flood, other])
    expect(admitted).toEqual([])
    expect(refused).toEqual([flood[3]])
    expect(stepOf(many(1, 'a'), [...flood, other]).admitted).toEqual([other])
  })

  it('takes among equals who was served longest ago', () => {
    const [a, b] = [work('a', { since: 1 }), work('b', { since: 2 })]
    const running = many(1, 'c')
    expect(
      stepOf(
        running,
        [a, b],
        10,
        new Map([
          ['a', 7],
          ['b', 3],
        ]),
      ).admitted,
    ).toEqual([b])
    expect(stepOf(running, [a, b]).admitted).toEqual([a])
  })

  it('refuses who has waited to the deadline', () => {
    const running = many(2, 'a')
    const [late, later] = [work('b', { since: 0 }), work('c', { since: 1000 })]
    expect(stepOf(running, [late, later], 5001).refused).toEqual([late])
  })

  it('refuses at once who would wait longer than to the deadline', () => {
    const running = many(2, 'a', { expectedMs: 3000 })
    const waiting = many(4, 'b', { expectedMs: 3000, since: 0 })
    // Two of them begin after 3 s, the next two would after 6 s.
    expect(stepOf(running, waiting, 1).refused).toEqual(waiting.slice(2))
  })

  it('lets who has waited for a while keep the turn until the deadline', () => {
    const running = many(2, 'a', { expectedMs: 9000 })
    const [settled, fresh] = [work('b', { since: 0 }), work('c', { since: 900 })]
    expect(stepOf(running, [settled, fresh], 1000).refused).toEqual([fresh])
  })

  it('refuses no one who has waited for a while because fewer may wait than before', () => {
    const settled = many(4, 'b', { since: 0 })
    const fresh = work('b', { since: 900 })
    const fewer = { ...places, heavy: 1, heavyLine: 2 }
    const occupancy = { running: many(2, 'a'), waiting: [...settled, fresh], servedAt: nobodyServed }
    expect(step(occupancy, fewer, 1000)).toEqual({ admitted: [], refused: [fresh] })
  })

  it('never refuses the patient', () => {
    const waiting = many(9, 'a', { isPatient: true })
    expect(stepOf(many(2, 'b'), waiting, 60_000)).toEqual({ admitted: [], refused: [] })
  })

  it('bounds the line of all work', () => {
    const { refused } = stepOf(many(4, 'a', { weight: 'cheap' }), many(120, 'b', { weight: 'cheap' }))
    expect(refused).toHaveLength(20)
  })
})

describe('a step at less cost', () => {
  const lane = (running: Work[], waiting: Work[]) => ({ running: new Set(running), waiting, servedAt: nobodyServed })

  it('is the step, whether callers may be refused or not', () => {
    for (const [running, waiting, now] of [
      [[], many(2, 'a'), 10],
      [many(2, 'a'), many(3, 'b', { expectedMs: 10 }), 10],
      [many(2, 'a', { expectedMs: 3000 }), many(4, 'b', { expectedMs: 3000 }), 1],
      [many(2, 'a'), many(9, 'b'), 10],
      [many(2, 'a'), [work('b'), work('c', { since: 1000 })], 5001],
    ] as const)
      expect(cheapStep(lane([...running], [...waiting]), places, now)).toEqual(stepOf([...running], [...waiting], now))
  })

  it('tells whether one more would be refused, without making that one wait', () => {
    const full = lane(many(2, 'a'), many(4, 'a'))
    expect(refusesComer(full, places, 10, work('a', { since: 10 }))).toBe(true)
    // Somebody else comes to their turn before the second piece of the first.
    expect(refusesComer(full, places, 10, work('b', { since: 10 }))).toBe(false)
    expect(refusesComer(full, places, 10, work('a', { since: 10, weight: 'cheap' }))).toBe(false)
    expect(full.waiting).toHaveLength(4)
  })
})

describe('the cost of a shape', () => {
  it('is presumed until it is seen', () => {
    expect(weightOf(unknownCost, 'cheap', 0)).toBe('cheap')
    expect(weightOf(unknownCost, 'heavy', 0)).toBe('doubtful')
  })

  it('is heavy as soon as a run of what may be heavy is slow, while it lasts', () => {
    const slow = duringRun(unknownCost, 'heavy', 0, 101)
    expect(weightOf(slow, 'heavy', 101)).toBe('heavy')
  })

  it('is doubtful where what is cheap to most has been slow for long', () => {
    expect(weightOf(duringRun(unknownCost, 'cheap', 0, 999), 'cheap', 999)).toBe('cheap')
    expect(weightOf(duringRun(unknownCost, 'cheap', 0, 1001), 'cheap', 1001)).toBe('doubtful')
  })

  it('is a trial where what is doubtful but cheap to most comes alone', () => {
    expect(weightAlone('doubtful', 'cheap')).toBe('trial')
    expect([weightAlone('doubtful', 'heavy'), weightAlone('cheap', 'cheap')]).toEqual(['doubtful', 'cheap'])
  })

  it('is quick where what may be heavy never is', () => {
    const quick = afterRun(unknownCost, 'heavy', 0, 20)
    expect(weightOf(quick, 'heavy', 20)).toBe('quick')
    expect(weightOf(afterRun(quick, 'heavy', 20, 520), 'heavy', 520)).toBe('doubtful')
  })

  it('is heavy no longer after one quick run', () => {
    const slow = afterRun(unknownCost, 'heavy', 0, 3000)
    expect(weightOf(slow, 'heavy', 3000)).toBe('heavy')
    expect(weightOf(afterRun(slow, 'heavy', 3000, 3010), 'heavy', 3010)).toBe('doubtful')
  })

  it('is not heavy for a moment in which everything stands still, or one run among quick ones', () => {
    const quick = afterRun(unknownCost, 'heavy', 0, 5)
    const stalled = afterRun(quick, 'heavy', 5, 800)
    expect(weightOf(stalled, 'heavy', 800)).toBe('doubtful')
    expect(weightOf(stalled, 'heavy', 1100)).toBe('heavy')
    const beside = duringRun(afterRun(stalled, 'heavy', 1100, 1105), 'heavy', 0, 1110)
    expect(weightOf(beside, 'heavy', 1110)).toBe('doubtful')
  })
})

describe('a rush in which runs take longer than ever before', () => {
  const usual = { ...places, all: 1, heavy: 1, quick: 1, heavyLine: 1000, line: 1000, ...patienceOfHashes }

  /** One place, a comer every two milliseconds, looked at every ten: how long those waited who were refused, and who got in. */
  function rush(runMsAt: (now: number) => number) {
    let cost = afterRun(unknownCost, 'heavy', 0, 60)
    let running: (Work & { readonly until: number })[] = []
    let waiting: Work[] = []
    const waits = { refused: [] as number[], admitted: [] as number[] }
    for (let now = 100; now < 20_000; now += 10) {
      for (const run of running.filter(({ until }) => until <= now)) cost = afterRun(cost, 'heavy', run.since, now)
      running = running.filter(({ until }) => until > now)
      for (const { since } of running) cost = duringRun(cost, 'heavy', since, now)
      const comers = many(5, 'a').map((comer, i) => ({ ...comer, since: now - 2 * i }))
      waiting = [...waiting, ...comers].map((one) => ({ ...one, expectedMs: cost.expectedMs }))
      const { admitted, refused } = step({ running, waiting, servedAt: nobodyServed }, usual, now)
      waits.refused.push(...refused.map(({ since }) => now - since))
      waits.admitted.push(...admitted.map(({ since }) => now - since))
      waiting = waiting.filter((one) => !admitted.includes(one) && !refused.includes(one))
      running = [...running, ...admitted.map((one) => ({ ...one, since: now, until: now + runMsAt(now) }))]
    }
    return waits
  }

  it.each([60, 150, 250, 400, 600, 1000])('refuses soon or never where a run takes %i ms', (runMs) => {
    const { refused, admitted } = rush(() => runMs)
    expect(Math.max(...refused)).toBeLessThanOrEqual(460)
    expect(admitted.length).toBeGreaterThan(19_000 / runMs)
  })

  it.each([2, 4, 6])('refuses soon or never where runs suddenly take %i times as long as others wait', (times) => {
    const { refused } = rush((now) => (now < 3000 ? 70 : 70 * times))
    expect(Math.max(...refused)).toBeLessThanOrEqual(460)
  })

  it('is not foreseen because one run has met a moment of stillness', () => {
    const usual = afterRun(unknownCost, 'heavy', 0, 10)
    const stood = afterRun(duringRun(usual, 'heavy', 100, 390), 'heavy', 100, 400)
    expect(stood.expectedMs).toBeLessThan(100)
    expect(afterRun(stood, 'heavy', 400, 700).expectedMs).toBe(300)
    expect(duringRun(usual, 'heavy', 100, 450).expectedMs).toBe(350)
  })
})

describe('the places of reads', () => {
  it('leave connections to what is never admitted, where there are several', () => {
    expect([1, 2, 4, 6, 12].map((connections) => readPlaces(connections, undefined, Infinity))).toEqual([
      { all: 1, heavy: 1, quick: 1 },
      { all: 1, heavy: 1, quick: 1 },
      { all: 3, heavy: 1, quick: 2 },
      { all: 4, heavy: 2, quick: 3 },
      { all: 10, heavy: 5, quick: 9 },
    ])
    expect(readPlaces(6, 1, Infinity)).toEqual({ all: 4, heavy: 1, quick: 1 })
    expect(readPlaces(6, 9, Infinity)).toEqual({ all: 4, heavy: 4, quick: 4 })
  })

  it('are for no more heavy work than there are cores beside the database, unless configured', () => {
    expect(readPlaces(20, undefined, 2)).toEqual({ all: 18, heavy: 2, quick: 17 })
    expect(readPlaces(20, undefined, 64)).toEqual({ all: 18, heavy: 9, quick: 17 })
    expect(readPlaces(20, 6, 2)).toEqual({ all: 18, heavy: 6, quick: 6 })
  })
})

describe('the places of reads now', () => {
  const calm: Rush = { since: 0, asked: 0, perSecond: 0 }
  const busy: Rush = { since: 0, asked: 0, perSecond: 50 }
  const counts = readPlaces(20, undefined, 2)
  const demand = { servers: 1, hashes: 0, rush: calm, sharedCores: 2 }

  it('are for heavy work on half of few cores while light things are asked for', () => {
    expect(placesNow(counts, demand)).toEqual({ all: 18, heavy: 2, quick: 17 })
    expect(placesNow(counts, { ...demand, rush: busy })).toEqual({ all: 18, heavy: 1, quick: 17 })
    expect(placesNow(counts, { ...demand, rush: busy, sharedCores: 1 }).heavy).toBe(1)
    expect(placesNow(readPlaces(20, undefined, 8), { ...demand, rush: busy, sharedCores: 8 }).heavy).toBe(8)
    expect(placesNow(readPlaces(20, undefined, Infinity), { ...demand, rush: busy, sharedCores: Infinity }).heavy).toBe(
      9,
    )
  })

  it('are fewer by the hashes that take a core, but never none', () => {
    expect(placesNow(counts, { ...demand, hashes: 1 }).heavy).toBe(1)
    expect(placesNow(counts, { ...demand, hashes: 2, rush: busy }).heavy).toBe(1)
    expect(placesNow(readPlaces(20, undefined, 8), { ...demand, hashes: 2, sharedCores: 8 }).heavy).toBe(8)
  })

  it('are as many again for each replica, which has cores of its own', () => {
    expect(placesNow(counts, { ...demand, servers: 3, rush: busy })).toEqual({ all: 54, heavy: 5, quick: 51 })
  })
})

describe('a lane', () => {
  const open = (all = 1) => openLane({ places: () => ({ all, heavy: all, quick: all }), refusal: 'Busy' })
  const heavy = { shape: 'a report', presumed: 'heavy' } as const
  const somebody = (gone?: AbortSignal): Asker => ({ caller: 'somebody', gone, places: 0 })
  const enter = (lane: ReturnType<typeof open>, who = somebody()) => workFor(who, () => lane.enter(heavy))

  it('hands a place on when it is left', async () => {
    const lane = open()
    const first = (await enter(lane)) as HeldPlace
    const second = enter(lane) as Promise<HeldPlace>
    expect(lane.stats()).toMatchObject({ running: { heavy: 1 }, waiting: { heavy: 1 } })
    first.leave()
    ;(await second).leave()
    expect(lane.stats()).toMatchObject({ running: { light: 0, heavy: 0 }, waiting: { light: 0, heavy: 0 } })
  })

  it('forgets who is gone', async () => {
    const lane = open()
    const first = (await enter(lane)) as HeldPlace
    const leaving = new AbortController()
    const left = enter(lane, somebody(leaving.signal)) as Promise<HeldPlace>
    leaving.abort()
    await expect(left).rejects.toMatchObject({ status: 499 })
    expect(lane.stats().waiting).toEqual({ light: 0, heavy: 0 })
    first.leave()
    await expect(enter(lane, somebody(AbortSignal.abort()))).rejects.toMatchObject({ status: 499 })
  })

  it('refuses with a code and Retry-After as soon as what runs is seen to be slow', async () => {
    const lane = open()
    const first = (await enter(lane)) as HeldPlace
    const outcomes = await Promise.allSettled(
      [
        ...Array.from({ length: 5 }, () => enter(lane) as Promise<HeldPlace>),
        waitFor(() => lane.stats().refused.heavy === 3).then(() => first.leave()),
      ].map(async (coming) => (await coming)?.leave()),
    )
    const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []))
    expect(refused).toHaveLength(3)
    for (const error of refused)
      expect(error).toMatchObject({ status: 503, code: 'OVERLOADED', message: 'Busy', headers: { 'retry-after': '1' } })
    expect(lane.stats()).toMatchObject({ running: { heavy: 0 }, waiting: { heavy: 0 } })
  })

  it('tells before anything is done who would be refused', async () => {
    const lane = open()
    const first = (await enter(lane)) as HeldPlace
    const coming = Array.from({ length: 2 }, () => enter(lane) as Promise<HeldPlace>)
    // As soon as it is known that what runs is slow.
    const refusal = await waitFor(() => lane.turnAway(heavy, 'somebody')?.catch((error: unknown) => error))
    expect(refusal).toMatchObject({ status: 503, code: 'OVERLOADED' })
    expect(lane.turnAway(heavy, 'somebody else')).toBeUndefined()
    first.leave()
    for (const place of coming) (await place).leave()
    expect(lane.turnAway(heavy, 'somebody')).toBeUndefined()
  })

  it('asks no further place of work that holds one, nor of work without an asker', async () => {
    const lane = open()
    await workFor(somebody(), () =>
      admitted(lane, heavy, async () => {
        await admitted(lane, heavy, async () => expect(lane.stats().running.heavy + lane.stats().running.light).toBe(1))
      }),
    )
    const first = (await enter(lane)) as HeldPlace
    expect(lane.enter(heavy)).not.toBeInstanceOf(Promise)
    first.leave()
  })

  it('tries again what is cheap to most and has been slow, one run at a time, while heavy work holds all of its places', async () => {
    const lane = openLane({ places: () => ({ all: 3, heavy: 1, quick: 1 }), refusal: 'Busy' })
    const list = { shape: 'a list', presumed: 'cheap' } as const
    const ask = () => workFor(somebody(), () => lane.enter(list))
    const report = (await enter(lane)) as HeldPlace
    const began = performance.now()
    const slow = (await ask()) as HeldPlace
    await waitFor(() => performance.now() - began > 1001)
    slow.leave()
    const trial = ask()
    const next = ask()
    expect([trial instanceof Promise, next instanceof Promise]).toEqual([false, true])
    ;(trial as HeldPlace).leave()
    ;(await next).leave()
    expect(lane.stats()).toMatchObject({ running: { heavy: 1 }, refused: { light: 0, heavy: 0 } })
    report.leave()
  })

  it('gives more places to the same work while no one waits', async () => {
    const lane = open(2)
    const first = (await enter(lane)) as HeldPlace
    const another = first.another()
    expect([another !== undefined, first.another()]).toEqual([true, undefined])
    const waiting = enter(lane) as Promise<HeldPlace>
    another!.leave()
    ;(await waiting).leave()
    first.leave()
  })
})

describe('hashes at once', () => {
  const rushAfter = (...counts: readonly (readonly [now: number, asked: number])[]) =>
    counts.reduce((rush, [now, asked]) => rushStep(rush, { now, asked }), noRush)

  it('are half of the cores while other things are asked for', () => {
    const busy = rushAfter([0, 0], [1000, 50])
    expect([1, 2, 3, 4, 16].map((cores) => hashesAtOnce(cores, busy))).toEqual([1, 1, 1, 2, 2])
  })

  it('are two while little else is', () => {
    const calm = rushAfter([0, 100], [1000, 109])
    expect([1, 2, 16].map((cores) => hashesAtOnce(cores, calm))).toEqual([2, 2, 2])
  })

  it('follow what is asked for from one half second to the next', () => {
    const calm = rushAfter([0, 0], [600, 0])
    expect(hashesAtOnce(2, rushStep(calm, { now: 900, asked: 1000 }))).toBe(2)
    const busy = rushStep(calm, { now: 1100, asked: 1000 })
    expect(hashesAtOnce(2, busy)).toBe(1)
    expect(hashesAtOnce(2, rushStep(busy, { now: 1700, asked: 1001 }))).toBe(2)
  })

  it('take for light what asks for nothing heavy, and no caller that is refused before all work', async () => {
    const lane = openLane({ places: () => ({ all: 1, heavy: 1, quick: 1 }), refusal: 'Too much' })
    const before = lightAskedSoFar()
    await workFor({ caller: 'a', gone: undefined, places: 0 }, async () => {
      for (let hash = 0; hash < 2; hash += 1)
        await admitted(lane, { shape: 'hash', presumed: 'heavy' }, async () => undefined)
    })
    await workFor({ caller: 'b', gone: undefined, places: 0 }, async () =>
      lane.turnAway({ shape: 'hash', presumed: 'heavy' }, 'b'),
    )
    lane.turnAway({ shape: 'hash', presumed: 'heavy' }, 'b')
    expect(lightAskedSoFar()).toBe(before)
    await workFor({ caller: 'c', gone: undefined, places: 0 }, () =>
      admitted(lane, { shape: 'list', presumed: 'cheap' }, async () => undefined),
    )
    expect(lightAskedSoFar()).toBe(before + 1)
  })
})
