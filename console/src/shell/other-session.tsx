import { useSyncExternalStore } from 'react'
import { isOfOthers, whenSessionChanges } from '../app/client.ts'
import { Button } from '../ui/button.tsx'
import { Note } from '../ui/states.tsx'

/** Says that this page shows another user or tenant than the browser is signed in as by now, and offers to load it again. */
export function OtherSession() {
  const isOthers = useSyncExternalStore(whenSessionChanges, isOfOthers)
  if (!isOthers) return null
  return (
    <Note kind="warning">
      In another tab you have signed in as another user or switched the tenant. This page still shows the former one, so
      it sends nothing: what you have typed stays here.{' '}
      <Button size="s" onClick={() => location.reload()}>
        Reload this page
      </Button>
    </Note>
  )
}
