import { createRequire } from 'node:module'

/** Gives what `make` makes of an object: made at the first question, kept for as long as the object is. */
export function oncePer<Source extends object, Made extends NonNullable<unknown>>(
  make: (source: Source) => Made,
): (source: Source) => Made {
  const made = new WeakMap<Source, Made>()
  return (source) => {
    const known = made.get(source)
    if (known !== undefined) return known
    const fresh = make(source)
    made.set(source, fresh)
    return fresh
  }
}

/** Gives what `make` makes at the first question. A failure is not kept: the next question makes it anew. */
export function untilMade<Made>(make: () => Promise<Made>): () => Promise<Made> {
  let made: Promise<Made> | undefined
  return () => {
    made ??= make().catch((error: unknown) => {
      made = undefined
      throw error
    })
    return made
  }
}

type OpenedByUse<Opened> = { readonly opened: () => Promise<Opened>; readonly close: () => Promise<void> }

/**
 * Something that its first use opens. Closed, it is opened no more: `opened` then rejects with `closedMessage`, or gives what was
 * open and answers for itself.
 */
export function openByUse<Opened extends NonNullable<unknown>>(
  open: () => Promise<Opened>,
  close: (opened: Opened) => Promise<void>,
  closedMessage: string,
): OpenedByUse<Opened> {
  let isClosed = false
  const everOpened = untilMade(async () => {
    if (isClosed) throw new Error(closedMessage)
    return open()
  })
  return {
    opened: everOpened,
    close: async () => {
      isClosed = true
      const opened = await everOpened().catch(() => undefined)
      if (opened !== undefined) await close(opened)
    },
  }
}

const require = createRequire(import.meta.url)

/**
 * A package that is loaded by its first use: for those that are large and that most processes never need. Name it twice,
 * as a type and as text: `onFirstUse<typeof import('ioredis')>('ioredis')`. One that another package brings along is found from
 * `owner`.
 */
export function onFirstUse<Package>(name: string, owner?: string): () => Package {
  let loaded: Package | undefined
  return () => (loaded ??= (owner === undefined ? require : createRequire(require.resolve(owner)))(name) as Package)
}
