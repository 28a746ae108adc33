import { fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'

export const kinds = ['light', 'health', 'heavy', 'logins'] as const
export type Kind = (typeof kinds)[number]

/** What clients ask for, and for how long. */
export type ClientLoad = {
  readonly address: string
  readonly token: string
  readonly ids: readonly string[]
  readonly seconds: number
  /** Clients that read single rows, that ask for `/health`, and that ask for heavy reports. */
  readonly light: number
  readonly health: number
  readonly heavy: number
  readonly loginsPerSecond: number
}

/** What became of a request. */
export type Asked = {
  readonly ms: number
  readonly status: number
  /** The answer, where it is not one of those allowed. */
  readonly wrong?: string
}

export type ClientLoadResult = { readonly seen: Readonly<Record<Kind, readonly Asked[]>>; readonly cpuSeconds: number }

export type Clients = {
  /** One load at a time. */
  ask(load: ClientLoad): Promise<ClientLoadResult>
  close(): void
}

/** Clients in a process of their own. */
export function openClients(): Clients {
  const child = fork(join(import.meta.dirname, 'overload-clients-main.ts'), {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  const over = once(child, 'exit').then(() => {
    throw new Error('the clients have ended')
  })
  over.catch(() => undefined)
  return {
    ask: async (load) => {
      const told = once(child, 'message') as Promise<[ClientLoadResult]>
      child.send(load)
      return (await Promise.race([told, over]))[0]
    },
    close: () => child.disconnect(),
  }
}

/** A look at every row. */
export const reportRequest = (n: number) => ({
  groupBy: ['shop', 'date:year:day', 'date:month:day'],
  aggregate: { n: { function: 'count', field: '*' }, sum: { function: 'sum', field: 'amount' } },
  filter: { amount: { gte: n % 10 } },
  sort: { shop: 'asc' },
  limit: 100,
})
