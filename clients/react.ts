import { useEffect, useState, useSyncExternalStore } from 'react'
import type { Client, Live, LiveFields, LiveQuery, LiveView, Name, Nested, SchemaType } from './client.ts'

const nothing: LiveView<never> = { rows: [], status: 'loading', error: undefined }

/**
 * The rows of a query, as they are: a component that uses it is drawn again with each change. A query that is equal to the one
 * before goes on; another one begins anew, and so does one that has ended, with the next sign-in. `live` has the writes that show
 * at once.
 */
export function useLive<S extends SchemaType, C extends Name<S>, const F extends LiveFields<S, C> = ['*']>(
  client: Client<S>,
  query: LiveQuery<S, C, F>,
): LiveView<Nested<S, C, F[number]>> & { readonly live: Live<S, C, F> | undefined } {
  const text = JSON.stringify(query)
  const [opened, setOpened] = useState<{ client: Client<S>; text: string; live: Live<S, C, F> }>()
  useEffect(() => {
    let live: Live<S, C, F>
    const open = () => {
      live = client.live(JSON.parse(text) as LiveQuery<S, C, F>)
      setOpened({ client, text, live })
    }
    open()
    const stopListening = client.auth.onChange((state) => {
      if (state === 'signed in' && live.view.status === 'ended') open()
    })
    return () => {
      stopListening()
      live.close()
    }
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
