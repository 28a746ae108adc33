/**
 * Who gets a place, who waits and who is refused: pure, so that every case can be tried. Places bound what runs at a time;
 * some of them are not for heavy work, so that what is quick never waits for what is slow.
 */

/**
 * `doubtful`: of a kind that may be heavy and has not been slow, or of one that mostly is quick and has been. It takes places of
 * heavy work, but there may wait as much of it as comes to its turn in time.
 */
export type Weight = 'cheap' | 'doubtful' | 'heavy'

export type Work = {
  /** Who takes turns with others. */
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
  /** Heavy work that may wait. */
  readonly heavyLine: number
  /** Work of any kind that may wait: nobody shall find out how much memory a line takes. */
  readonly line: number
  /** The longest wait. */
  readonly deadlineMs: number
}

export type Standing<W extends Work> = {
  readonly running: readonly Work[]
  /** In the order in which they came. */
  readonly waiting: readonly W[]
  /** A number per caller, higher for those who have got a place later. */
  readonly servedAt: ReadonlyMap<string, number>
}

export type Step<W> = { readonly admitted: readonly W[]; readonly refused: readonly W[] }

/** What follows from how things stand now. */
export function step<W extends Work>(standing: Standing<W>, places: Places, now: number): Step<W> {
  const { running } = standing
  const admitted: W[] = []
  const left: W[] = []
  let free = places.all - running.length
  let freeHeavy = places.heavy - running.filter(takesHeavyPlace).length
  for (const work of inTurns(standing)) {
    if (free <= 0 || (takesHeavyPlace(work) && freeHeavy <= 0)) left.push(work)
    else {
      admitted.push(work)
      free -= 1
      if (takesHeavyPlace(work)) freeHeavy -= 1
    }
  }
  return { admitted, refused: refusedFrom(left, [...running, ...admitted], places, now) }
}

/**
 * Callers take turns, so that none can fill the line alone: everybody's first piece of work comes before anybody's second,
 * where pieces that run count, too; among equals who was served longest ago comes first.
 */
function inTurns<W extends Work>({ running, waiting, servedAt }: Standing<W>): W[] {
  const pieces = new Map<string, number>()
  const next = (caller: string) => {
    const piece = (pieces.get(caller) ?? 0) + 1
    pieces.set(caller, piece)
    return piece
  }
  for (const { caller } of running) next(caller)
  return waiting
    .map((work) => ({ work, piece: next(work.caller), servedAt: servedAt.get(work.caller) ?? 0 }))
    .sort((a, b) => a.piece - b.piece || a.servedAt - b.servedAt || a.work.since - b.work.since)
    .map(({ work }) => work)
}

/** Who has waited too long or would, and whom there is no room for; the others in their turns. */
function refusedFrom<W extends Work>(
  waiting: readonly W[],
  running: readonly Work[],
  places: Places,
  now: number,
): W[] {
  const inHeavy = openLine(running.filter(takesHeavyPlace), places.heavy, now)
  const inAll = openLine(running, places.all, now)
  let length = 0
  let heavyLength = 0
  return waiting.filter((work) => {
    if (work.isPatient) return false
    const line = takesHeavyPlace(work) ? inHeavy : inAll
    const isLate = now - work.since + line.wait() > places.deadlineMs
    if (isLate || length >= places.line || (isHeavy(work) && heavyLength >= places.heavyLine)) return true
    line.add(work)
    length += 1
    if (isHeavy(work)) heavyLength += 1
    return false
  })
}

const takesHeavyPlace = ({ weight }: Work): boolean => weight !== 'cheap'

const isHeavy = ({ weight, isPatient }: Work): boolean => weight === 'heavy' && !isPatient

/** How long who comes next waits for one of the places, as far as can be told. */
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
