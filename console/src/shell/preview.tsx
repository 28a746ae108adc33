import { queryOptions, useQuery } from '@tanstack/react-query'
import { Eye } from 'lucide-react'
import { useState } from 'react'
import { client } from '../app/client.ts'
import { beginAnew } from '../app/session.ts'
import { Button } from '../ui/button.tsx'
import { notifyError } from '../ui/toast.tsx'
import styles from './preview.module.css'

type Preview = {
  readonly user: { readonly id: string; readonly email: string | null; readonly firstName: string } | null
  readonly role: { readonly id: string; readonly name: string } | null
}

/** Whose view the session shows; null where it is the administrator's own. */
export const previewQuery = queryOptions({
  queryKey: ['preview'],
  queryFn: async () => (await client.request<{ preview: Preview | null }>('/auth/preview')).preview,
})

/** Says in whose place somebody is, on every page, and leads back. */
export function PreviewBanner() {
  const { data } = useQuery(previewQuery)
  const [isBusy, setBusy] = useState(false)
  if (data === null || data === undefined) return null
  const who = data.user?.firstName || data.user?.email
  const stop = async () => {
    setBusy(true)
    try {
      await client.request('/auth/preview', { method: 'DELETE' })
      beginAnew()
    } catch (error) {
      notifyError(error)
      setBusy(false)
    }
  }
  return (
    <div className={styles.banner} role="status">
      <Eye aria-hidden="true" size={16} />
      <span>
        You see what{' '}
        {who === undefined || who === null
          ? `the role ${data.role?.name ?? ''}`
          : `${who} (${data.role?.name ?? 'no role'})`}{' '}
        sees. Nothing can be changed.
      </span>
      <Button size="s" isBusy={isBusy} onClick={() => void stop()}>
        Be yourself again
      </Button>
    </div>
  )
}
