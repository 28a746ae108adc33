import type { KeptRows, RowStore } from './live.ts'

const table = 'live'

/** Rows in IndexedDB, or undefined where there is none: in Node, or where the browser keeps nothing. */
export function openRowStore(name: string): (RowStore & { clear(): Promise<void> }) | undefined {
  if (typeof indexedDB === 'undefined') return undefined
  let opened: Promise<IDBDatabase> | undefined
  const database = () => {
    opened ??= open(name)
    return opened
  }
  const act = async <Result>(mode: IDBTransactionMode, work: (rows: IDBObjectStore) => IDBRequest<Result>) =>
    resultOf(work((await database()).transaction(table, mode).objectStore(table)))
  return {
    load: (key) => act<KeptRows | undefined>('readonly', (rows) => rows.get(key)),
    save: async (key, kept) => void (await act('readwrite', (rows) => rows.put(kept, key))),
    remove: async (key) => void (await act('readwrite', (rows) => rows.delete(key))),
    clear: async () => void (await act('readwrite', (rows) => rows.clear())),
  }
}

function open(name: string): Promise<IDBDatabase> {
  const request = indexedDB.open(name, 1)
  request.onupgradeneeded = () => request.result.createObjectStore(table)
  return resultOf(request)
}

function resultOf<Result>(request: IDBRequest<Result>): Promise<Result> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error)
  })
}
