import { useEffect, useState, useSyncExternalStore } from 'react'
import type { Client, Live, LiveQuery, LiveView, Name, Row, SchemaType } from './client.ts'

const nothing: LiveView<never> = { rows: [], status: 'loading', error: undefined }

/**
 * The rows of a query, as they are: a component that uses it is drawn again with each change. A query that is equal to the one
 * before goes on; another one begins anew. `live` has the writes that show at once.
 */
export function useLive<S extends SchemaType, C extends Name<S>>(
  client: Client<S>,
  query: LiveQuery<S, C>,
): LiveView<Row<S, C>> & { readonly live: Live<S, C> | undefined } {
  const text = JSON.stringify(query)
  const [opened, setOpened] = useState<{ client: Client<S>; text: string; live: Live<S, C> }>()
  useEffect(() => {
    const live = client.live(JSON.parse(text) as LiveQuery<S, C>)
    setOpened({ client, text, live })
    return () => live.close()
  }, [client, text])
  // Another query is drawn before its rows are opened.
  const live = opened?.client === client && opened.text === text ? opened.live : undefined
  const view = useSyncExternalStore(
    (listener) => live?.subscribe(listener) ?? (() => undefined),
    () => live?.view ?? nothing,
    () => nothing,
  )
  return { ...view, live }
}
