/**
 * Admission: which work gets a place, waits or is refused. Pure, so that every case can be tried. Places bound what runs at a time;
 * some of them are not for heavy work, so that what is quick never waits for what is slow.
 */

/**
 * `quick`: of a kind that may be heavy, and never is. It leaves one place to what is cheap.
 * `doubtful`: of a kind that may be heavy and has not been slow, or of one that mostly is quick and has been. It takes places of
 * heavy work, but there may wait as much of it as comes to its turn in time.
 * `trial`: work of a kind that mostly is quick and has been slow, while none of its like runs. It leaves one place to what is cheap,
 * and takes no place of heavy work: a doubt would last as long as heavy work does.
 */
export type Weight = 'cheap' | 'quick' | 'trial' | 'doubtful' | 'heavy'

export type Work = {
  /** The key by which callers take turns. */
  readonly caller: string
  readonly weight: Weight
  /** When it came; milliseconds of one clock, here and everywhere. */
  readonly since: number
  /** How long its like hold a place; 0 where that is not known. */
  readonly expectedMs: number
  /** Has a bound of its own: it is never refused. */
  readonly isPatient: boolean
}

export type Places = {
  readonly all: number
  /** How many of them heavy work may hold. */
  readonly heavy: number
  /** How many of them work that is not cheap may hold, where it is quick. */
  readonly quick: number
  /** Heavy work that may wait. */
  readonly heavyLine: number
  /** Work of any kind that may wait. It bounds the memory of the line. */
  readonly line: number
  /** The longest wait. */
  readonly deadlineMs: number
  /** Work that would probably wait for longer is refused at once. */
  readonly foreseenMs: number
}

/** How long work may wait. */
export type Patience = Pick<Places, 'deadlineMs' | 'foreseenMs'>

/**
 * Of hashes as many wait as there are in time, not so many at a time. A machine that is short of cores computes them ever
 * more slowly, so there lies much between what is foreseen and the deadline.
 */
export const patienceOfHashes: Patience = { deadlineMs: 10_000, foreseenMs: 1500 }

/** How many places there are, and for what. */
export type PlaceCounts = Pick<Places, 'all' | 'heavy' | 'quick'>

/** The work in a lane. */
type Occupancy<W extends Work> = {
  readonly running: readonly Work[]
  /** In the order in which they came. */
  readonly waiting: readonly W[]
  /** A number per caller, higher for those who have got a place later. */
  readonly servedAt: ReadonlyMap<string, number>
}

type Step<W> = { readonly admitted: readonly W[]; readonly refused: readonly W[] }

/** The work to admit and to refuse now. */
export function step<W extends Work>(occupancy: Occupancy<W>, places: Places, now: number): Step<W> {
  const admitted = admissible(occupancy, places)
  const isAdmitted = new Set<Work>(admitted)
  const left = inTurns(occupancy).filter((work) => !isAdmitted.has(work))
  return { admitted, refused: refusedFrom(left, [...occupancy.running, ...admitted], places, now) }
}

/** Work in a lane, as it is kept: copied for a decision only where one may be needed. */
type InLane<W extends Work> = Omit<Occupancy<W>, 'running'> & { readonly running: ReadonlySet<Work> }

/** As {@link step}; cheaper where no work can be refused. */
export function cheapStep<W extends Work>(lane: InLane<W>, places: Places, now: number): Step<W> {
  const occupancy = copyOf(lane)
  return mayRefuse(lane, places, now)
    ? step(occupancy, places, now)
    : { admitted: admissible(occupancy, places), refused: [] }
}

/** Whether work that came now would be refused at once. */
export function refusesComer(lane: InLane<Work>, places: Places, now: number, comer: Work): boolean {
  if (!mayRefuse(lane, places, now, comer)) return false
  const occupancy = copyOf(lane)
  return step({ ...occupancy, waiting: [...occupancy.waiting, comer] }, places, now).refused.includes(comer)
}

/** The work in a lane at this moment. */
export function copyOf<W extends Work>({ running, waiting, servedAt }: InLane<W>): Occupancy<W> {
  return { running: [...running], waiting, servedAt }
}

/** The waiting work for which there is a place now, in its order. */
export function admissible<W extends Work>(occupancy: Occupancy<W>, places: PlaceCounts): W[] {
  const { running } = occupancy
  const admitted: W[] = []
  let free = places.all - running.length
  if (free <= 0) return admitted
  let notCheap = running.filter(isNotCheap).length
  const line = turnsOf(occupancy)
  for (; free > 0; free -= 1) {
    const next = first(line, ({ work }) => notCheap < placesOf(work.weight, places))
    if (next === undefined) break
    admitted.push(next.work)
    line.splice(line.indexOf(next), 1)
    if (isNotCheap(next.work)) notCheap += 1
  }
  return admitted
}

/** Whether there is a place for more work of this weight. */
export function hasRoom(weight: Weight, running: ReadonlySet<Work>, places: PlaceCounts): boolean {
  if (running.size >= places.all) return false
  if (weight === 'cheap') return true
  let notCheap = 0
  for (const work of running) if (isNotCheap(work)) notCheap += 1
  return notCheap < placesOf(weight, places)
}

/** Of the places, how many work of this weight may find taken by work that is not cheap. */
function placesOf(weight: Weight, { all, heavy, quick }: PlaceCounts): number {
  switch (weight) {
    case 'cheap':
      return Number.POSITIVE_INFINITY
    case 'trial':
      return Math.max(heavy, all - 1)
    case 'quick':
      return quick
    default:
      return heavy
  }
}

/**
 * False if no work can be refused, `comer` included: even with one place all of it would get its turn in time, and the lines are
 * short. That is the case most of the time, and an exact check costs more than answering a request.
 */
export function mayRefuse<W extends Work>(
  { running, waiting }: Pick<Occupancy<W>, 'waiting'> & { readonly running: Iterable<Work> },
  places: Places,
  now: number,
  comer?: Work,
): boolean {
  let ms = comer?.expectedMs ?? 0
  let heavy = comer !== undefined && isHeavy(comer) ? 1 : 0
  for (const work of waiting) {
    ms += work.expectedMs
    if (isHeavy(work)) heavy += 1
  }
  if (heavy > places.heavyLine || waiting.length >= places.line) return true
  for (const { expectedMs } of running) ms += expectedMs
  // In the order in which they came, so that the first has waited longest, unless it is patient.
  const oldest = waiting.find(({ isPatient }) => !isPatient)
  return ms + (oldest === undefined ? 0 : now - oldest.since) > places.foreseenMs
}

/**
 * Work that has waited for so long keeps its turn until the deadline, whatever is foreseen and however short the line has
 * become: a refusal comes soon or hardly ever. Milliseconds; until then a few runs have shown what work costs in a rush
 * that has just begun.
 */
const settledMs = 450

type Turn<W> = { readonly work: W; readonly piece: number; readonly servedAt: number }

/**
 * Callers take turns, so that none can fill the line alone: every caller's first piece of work comes before any caller's second.
 * Running pieces count too. Among equals, the caller who was served longest ago comes first.
 */
function turnsOf<W extends Work>({ running, waiting, servedAt }: Occupancy<W>): Turn<W>[] {
  const pieces = new Map<string, number>()
  const next = (caller: string) => {
    const piece = (pieces.get(caller) ?? 0) + 1
    pieces.set(caller, piece)
    return piece
  }
  for (const { caller } of running) next(caller)
  return waiting.map((work) => ({ work, piece: next(work.caller), servedAt: servedAt.get(work.caller) ?? 0 }))
}

function inTurns<W extends Work>(occupancy: Occupancy<W>): W[] {
  return turnsOf(occupancy)
    .sort(compareTurns)
    .map(({ work }) => work)
}

const compareTurns = (a: Turn<Work>, b: Turn<Work>): number =>
  a.piece - b.piece || a.servedAt - b.servedAt || a.work.since - b.work.since

function first<W extends Work>(line: readonly Turn<W>[], isMeant: (turn: Turn<W>) => boolean): Turn<W> | undefined {
  let found: Turn<W> | undefined
  for (const turn of line) if (isMeant(turn) && (found === undefined || compareTurns(turn, found) < 0)) found = turn
  return found
}

/** The work that has waited too long or would, or that there is no room for; the rest keeps its turns. */
function refusedFrom<W extends Work>(
  waiting: readonly W[],
  running: readonly Work[],
  places: Places,
  now: number,
): W[] {
  const inHeavy = openLine(running.filter(isNotCheap), places.heavy, now)
  const inAll = openLine(running, places.all, now)
  let length = 0
  let heavyLength = 0
  return waiting.filter((work) => {
    if (work.isPatient) return false
    const line = waitsForHeavy(work) ? inHeavy : inAll
    const waited = now - work.since
    const isSettled = waited > settledMs
    const isLate = isSettled ? waited > places.deadlineMs : waited + line.wait() > places.foreseenMs
    const isTooMany = !isSettled && isHeavy(work) && heavyLength >= places.heavyLine
    if (isLate || isTooMany || length >= places.line) return true
    line.add(work)
    length += 1
    if (isHeavy(work)) heavyLength += 1
    return false
  })
}

const isNotCheap = ({ weight }: Work): boolean => weight !== 'cheap'

const waitsForHeavy = ({ weight }: Work): boolean => weight !== 'cheap' && weight !== 'trial'

const isHeavy = ({ weight, isPatient }: Work): boolean => weight === 'heavy' && !isPatient

/** How long the next work waits for one of the places, as far as can be foreseen. */
function openLine(running: readonly Work[], places: number, now: number) {
  const ends = running.slice(0, places).map(({ expectedMs, since }) => Math.max(0, expectedMs - (now - since)))
  while (ends.length < places) ends.push(0)
  const nextEnd = () => ends.indexOf(Math.min(...ends))
  return {
    wait: () => ends[nextEnd()]!,
    add: ({ expectedMs }: Work) => {
      ends[nextEnd()]! += expectedMs
    },
  }
}

/** The presumption about work whose cost is not known yet. */
export type CostPresumption = 'cheap' | 'heavy'

/**
 * Runs that hold a place for longer are slow. Milliseconds. Of what is cheap to most it takes more to doubt it: a machine
 * that is busy with other things makes everything slow.
 */
const slowMs: Readonly<Record<CostPresumption, number>> = { heavy: 100, cheap: 1000 }
/** Work that has been quick before, or is of a kind that mostly is, may be slow for so long before that counts. */
const graceMs = 1000
/** The average of what may be heavy and never is. Milliseconds. */
const quickMs = 50

/** How long work of one shape takes. */
export type Cost = {
  /** The recent average; undefined before the first end. */
  readonly ms: number | undefined
  /** How long the next run will probably take: follows a rush that makes everything slow sooner than the average does. */
  readonly expectedMs: number
  /** How long the last run took. */
  readonly lastMs: number
  /** When a quick run ended last. */
  readonly quickAt: number | undefined
  /** Since when every run has been slow. */
  readonly slowSince: number | undefined
}

export const unknownCost: Cost = { ms: undefined, expectedMs: 0, lastMs: 0, quickAt: undefined, slowSince: undefined }

/** After a run. One quick run is proof: the load of others makes work slower, and nothing makes it faster. */
export function afterRun(cost: Cost, presumed: CostPresumption, startedAt: number, now: number): Cost {
  const ms = now - startedAt
  const average = cost.ms === undefined ? ms : cost.ms + (ms - cost.ms) * (ms < cost.ms ? 0.5 : 0.2)
  // Two slow runs one after the other tell more than one, which may have met a moment of stillness.
  const expectedMs = Math.max(average, Math.min(ms, Math.max(cost.expectedMs, cost.lastMs)))
  const seen = { ms: average, expectedMs, lastMs: ms }
  if (ms <= slowMs[presumed]) return { ...seen, quickAt: now, slowSince: undefined }
  return { ...duringRun(cost, presumed, startedAt, now), ...seen }
}

/** A run of this age is no moment of stillness. Milliseconds. */
const tellingMs = 300

/** While a run lasts: it is as slow as it is old. */
export function duringRun(cost: Cost, presumed: CostPresumption, startedAt: number, now: number): Cost {
  const age = now - startedAt
  const aged = age > Math.max(tellingMs, cost.expectedMs) ? { ...cost, expectedMs: age } : cost
  if (age <= slowMs[presumed] || cost.slowSince !== undefined) return aged
  return { ...aged, slowSince: Math.max(startedAt, cost.quickAt ?? startedAt) }
}

/** Work that is presumed heavy never counts as cheap, however quick it is: it may become slow all at once. */
export function weightOf({ ms, quickAt, slowSince }: Cost, presumed: CostPresumption, now: number): Weight {
  const grace = quickAt !== undefined || presumed === 'cheap' ? graceMs : 0
  if (slowSince !== undefined && now - slowSince >= grace) return presumed === 'heavy' ? 'heavy' : 'doubtful'
  if (presumed === 'cheap') return 'cheap'
  return slowSince === undefined && ms !== undefined && ms <= quickMs ? 'quick' : 'doubtful'
}

/** The weight of work of which no other run of its shape is under way. */
export const weightAlone = (weight: Weight, presumed: CostPresumption): Weight =>
  weight === 'doubtful' && presumed === 'cheap' ? 'trial' : weight

/**
 * Of the connections that reads have, how many admitted work may hold at a time. The rest is for what is never admitted:
 * reads by key, and whatever else takes no time. Heavy work leaves half of the places to lists, and does not run on more
 * than `cores` of them, where the database shares this machine: more statements would not end sooner, and everything else
 * would wait for a core. Work of its kinds that is quick leaves one place, unless `heavyAtOnce` bounds all of it.
 */
export function readPlaces(connections: number, heavyAtOnce: number | undefined, cores: number): PlaceCounts {
  const kept = connections >= 5 ? 2 : connections >= 2 ? 1 : 0
  const all = connections - kept
  const heavy = Math.min(all, heavyAtOnce ?? Math.max(1, Math.min(cores, Math.floor(all / 2))))
  return { all, heavy, quick: heavyAtOnce === undefined ? Math.max(heavy, all - 1) : heavy }
}

/** The places of reads depend on this, from one moment to the next. */
type PlaceDemand = {
  /** The primary and the replicas that serve: each of them bears as much. */
  readonly servers: number
  /** Hashes of passwords that are being computed. */
  readonly hashes: number
  readonly rush: Rush
  /** Cores that this process shares with the database; infinite where each has its own. */
  readonly sharedCores: number
}

/**
 * The places of reads now. Where few cores are shared with the database, a hash takes one of the places of heavy work, and
 * half of the cores do heavy work while light things are asked for: with all of them taken, everything that is light waits
 * for a core whenever it goes on, several milliseconds each time.
 */
export function placesNow(
  { all, heavy, quick }: PlaceCounts,
  { servers, hashes, rush, sharedCores }: PlaceDemand,
): PlaceCounts {
  const replicated = heavy * (servers - 1)
  const own = isRush(rush) ? Math.min(heavy, halfOf(sharedCores)) : heavy
  const heavyNow = sharedCores < fewCores ? Math.max(1, own + replicated - hashes) : heavy + replicated
  return { all: all * servers, heavy: heavyNow, quick: quick * servers }
}

const fewCores = 4

/** How much that is light is asked for: counted since `since`, a rate of the time before. */
export type Rush = { readonly since: number; readonly asked: number; readonly perSecond: number }

export const noRush: Rush = { since: Number.NEGATIVE_INFINITY, asked: 0, perSecond: 0 }

const rushWindowMs = 500

/** The rush after `asked` light requests since the process began, anew after half a second. */
export function rushStep(rush: Rush, { now, asked }: { readonly now: number; readonly asked: number }): Rush {
  const passedMs = now - rush.since
  if (passedMs < rushWindowMs) return rush
  return { since: now, asked, perSecond: (1000 * (asked - rush.asked)) / passedMs }
}

/** A probe or two are no rush. */
const rushPerSecond = 10

const isRush = ({ perSecond }: Rush): boolean => perSecond >= rushPerSecond

const halfOf = (cores: number): number => Math.max(1, Math.floor(cores / 2))

/**
 * How many hashes may be computed at once: they would slow down everything else, so half of the cores do it while light
 * things are asked for, and else two. libuv has four threads; two of them stay free for files, DNS and TLS.
 */
export function hashesAtOnce(cores: number, rush: Rush): number {
  return isRush(rush) ? Math.min(2, halfOf(cores)) : 2
}
