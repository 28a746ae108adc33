/* Which job runs where: decided from what has happened, without processes and clocks. */

/** The first message of a child, once it can take a job. */
export const ready = { kind: 'ready' } as const

export type PoolJob = {
  readonly id: number
  /** The caller who takes turns with others. */
  readonly turn: string
  /** It takes no time, so it goes first and is never refused. */
  readonly isQuick: boolean
  /** Processes that have died under it, by no fault that is known to be its own. */
  readonly deaths: number
}

type PoolChild = { readonly id: number; readonly isStarted: boolean; readonly job: PoolJob | undefined }

export type ChildPoolState = {
  readonly children: readonly PoolChild[]
  readonly queue: readonly PoolJob[]
  /** The last turns that were served, the latest last. */
  readonly served: readonly string[]
  readonly lastChild: number
  /** Children that have died in succession before they could do anything. */
  readonly failedStarts: number
}

export type PoolInput =
  | { readonly kind: 'asked'; readonly job: PoolJob }
  /** Its caller no longer waits for it. */
  | { readonly kind: 'abandoned'; readonly job: number }
  | { readonly kind: 'started'; readonly child: number }
  | { readonly kind: 'finished'; readonly child: number }
  /** Its job is done, and it ends. */
  | { readonly kind: 'retired'; readonly child: number }
  /** `isGuilty`: its job took too much memory or time. */
  | { readonly kind: 'ended'; readonly child: number; readonly isGuilty: boolean }
  | { readonly kind: 'unused for long' }
  /** There will be work for every process. */
  | { readonly kind: 'wanted soon' }

export type PoolEffect =
  | { readonly kind: 'start'; readonly child: number }
  | { readonly kind: 'run'; readonly job: number; readonly child: number }
  | { readonly kind: 'end'; readonly child: number }
  /** Too many wait. */
  | { readonly kind: 'refuse'; readonly job: number }
  /** It cannot be done: processes die of it, or none can be started. */
  | { readonly kind: 'break'; readonly job: number; readonly why: 'deadly' | 'no process' }

export type PoolBounds = {
  /** Processes. */
  readonly atOnce: number
  /** Jobs that are not quick. */
  readonly mostWaiting: number
  /** A job is given up when so many processes have died under it. */
  readonly mostDeaths: number
}

const mostFailedStarts = 3

export const emptyPool: ChildPoolState = { children: [], queue: [], served: [], lastChild: 0, failedStarts: 0 }

type PoolStep = [ChildPoolState, readonly PoolEffect[]]

export function stepPool(state: ChildPoolState, input: PoolInput, bounds: PoolBounds): PoolStep {
  switch (input.kind) {
    case 'asked':
      return ask(state, input.job, bounds)
    case 'abandoned':
      return [{ ...state, queue: state.queue.filter(({ id }) => id !== input.job) }, []]
    case 'started':
      return dispatch({ ...withChild(state, idle(input.child)), failedStarts: 0 }, bounds)
    case 'finished':
      return dispatch(withChild(state, idle(input.child)), bounds)
    case 'retired':
      return dispatch({ ...state, children: state.children.filter(({ id }) => id !== input.child) }, bounds)
    case 'ended':
      return end(state, input.child, input.isGuilty, bounds)
    case 'unused for long':
      return [
        { ...state, children: state.children.filter((child) => !isIdle(child)) },
        state.children.filter(isIdle).map(({ id }) => ({ kind: 'end', child: id })),
      ]
    case 'wanted soon':
      return hire(state, bounds.atOnce, bounds)
  }
}

const idle = (id: number): PoolChild => ({ id, isStarted: true, job: undefined })

const isIdle = ({ isStarted, job }: PoolChild): boolean => isStarted && job === undefined

/** Where too many wait, one of those goes who have the most waiting; a newcomer among equals. */
function ask(state: ChildPoolState, job: PoolJob, bounds: PoolBounds): PoolStep {
  const waiting = state.queue.filter(({ isQuick }) => !isQuick)
  if (job.isQuick || waiting.length < bounds.mostWaiting)
    return dispatch({ ...state, queue: [...state.queue, job] }, bounds)
  const counts = Map.groupBy(waiting, ({ turn }) => turn)
  const [, most] = [...counts].toSorted(([, a], [, b]) => b.length - a.length)[0]!
  const own = counts.get(job.turn)?.length ?? 0
  if (most.length <= own + 1) return [state, [{ kind: 'refuse', job: job.id }]]
  const last = most.at(-1)!
  const [next, effects] = dispatch({ ...state, queue: [...state.queue.filter((one) => one !== last), job] }, bounds)
  return [next, [{ kind: 'refuse', job: last.id }, ...effects]]
}

function end(state: ChildPoolState, id: number, isGuilty: boolean, bounds: PoolBounds): PoolStep {
  const child = state.children.find((one) => one.id === id)
  if (child === undefined) return [state, []]
  const left = { ...state, children: state.children.filter((one) => one !== child) }
  if (child.job !== undefined) return bereave(left, child.job, isGuilty, bounds)
  if (child.isStarted) return dispatch(left, bounds)
  const failedStarts = state.failedStarts + 1
  if (failedStarts < mostFailedStarts) return dispatch({ ...left, failedStarts }, bounds)
  const broken = state.queue.map((job): PoolEffect => ({ kind: 'break', job: job.id, why: 'no process' }))
  return [{ ...left, queue: [], failedStarts: 0 }, broken]
}

/** A job whose process died under it may be innocent: it is tried once more, before others. */
function bereave(state: ChildPoolState, job: PoolJob, isGuilty: boolean, bounds: PoolBounds): PoolStep {
  const deaths = job.deaths + 1
  if (!isGuilty && deaths < bounds.mostDeaths)
    return dispatch({ ...state, queue: [{ ...job, deaths }, ...state.queue] }, bounds)
  const [next, effects] = dispatch(state, bounds)
  return [next, [{ kind: 'break', job: job.id, why: 'deadly' }, ...effects]]
}

/** Gives waiting jobs to idle children, and starts children where there are too few. */
function dispatch(state: ChildPoolState, bounds: PoolBounds): PoolStep {
  if (state.queue.length === 0) return [state, []]
  const free = state.children.find(isIdle)
  if (free === undefined) return hire(state, state.queue.length, bounds)
  const job = nextOf(state)
  const [next, effects] = dispatch(
    {
      ...withChild(state, { ...free, job }),
      queue: state.queue.filter((one) => one !== job),
      served: [...state.served.filter((turn) => turn !== job.turn), job.turn].slice(-bounds.mostWaiting),
    },
    bounds,
  )
  return [next, [{ kind: 'run', job: job.id, child: free.id }, ...effects]]
}

/** Starts processes until so many are on their way. */
function hire(state: ChildPoolState, wanted: number, bounds: PoolBounds): PoolStep {
  const starting = state.children.filter(({ isStarted }) => !isStarted).length
  if (state.children.length >= bounds.atOnce || starting >= wanted) return [state, []]
  const child = state.lastChild + 1
  const [next, effects] = hire(
    withChild({ ...state, lastChild: child }, { id: child, isStarted: false, job: undefined }),
    wanted,
    bounds,
  )
  return [next, [{ kind: 'start', child }, ...effects]]
}

/** Quick jobs and retries first; then those of the caller who was served the longest ago, or never. */
function nextOf({ queue, served }: ChildPoolState): PoolJob {
  const rank = ({ isQuick, deaths, turn }: PoolJob) => (isQuick || deaths > 0 ? -2 : served.indexOf(turn))
  return queue.reduce((first, job) => (rank(job) < rank(first) ? job : first))
}

function withChild(state: ChildPoolState, child: PoolChild): ChildPoolState {
  const isKnown = state.children.some(({ id }) => id === child.id)
  const children = isKnown
    ? state.children.map((one) => (one.id === child.id ? child : one))
    : [...state.children, child]
  return { ...state, children }
}
