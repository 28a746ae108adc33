import { useQuery } from '@tanstack/react-query'
import { Bookmark, Trash2 } from 'lucide-react'
import { type FormEvent, useState } from 'react'
import { client } from '../../app/client.ts'
import { Button, IconButton } from '../../ui/button.tsx'
import { TextField } from '../../ui/field.tsx'
import { Popover } from '../../ui/menu.tsx'
import { Problem } from '../../ui/states.tsx'
import { notifyError } from '../../ui/toast.tsx'
import { type ListSearch, readListSearch } from './query.ts'
import styles from './views.module.css'

type View = {
  readonly id: string
  readonly name: string
  readonly query: Readonly<Record<string, unknown>>
  readonly isOwn: boolean
}

type ViewsProps = {
  readonly collection: string
  readonly search: ListSearch
  readonly onOpen: (search: ListSearch) => void
}

/** The settings of a list under a name: one's own, and those that are shared with one's role. */
export function Views({ collection, search, onOpen }: ViewsProps) {
  const [isOpen, setOpen] = useState(false)
  const { data, error, refetch } = useQuery({
    queryKey: ['views', collection],
    queryFn: async ({ signal }) =>
      (await client.request<{ data: readonly View[] }>('/views', { query: { page: 'data', collection }, signal })).data,
    enabled: isOpen,
  })
  const change = async (work: () => Promise<unknown>) => {
    try {
      await work()
      await refetch()
    } catch (failure) {
      notifyError(failure)
    }
  }
  const save = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault()
    const form = event.currentTarget
    const name = String(new FormData(form).get('name')).trim()
    const body = { name, page: 'data', collection, query: search }
    void change(async () => {
      await client.request('/views', { method: 'POST', body })
      form.reset()
    })
  }
  return (
    <Popover
      title="Views"
      isOpen={isOpen}
      onOpenChange={setOpen}
      trigger={
        <Button size="s">
          <Bookmark aria-hidden="true" /> Views
        </Button>
      }
    >
      <div className={styles.views}>
        {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
        {data !== undefined && data.length === 0 && <p>Nothing is saved yet.</p>}
        <ul>
          {data?.map(({ id, name, query, isOwn }) => (
            <li key={id} className={styles.view}>
              <Button
                kind="ghost"
                size="s"
                onClick={() => {
                  setOpen(false)
                  onOpen(readListSearch({ ...query }))
                }}
              >
                {name}
              </Button>
              {isOwn && (
                <IconButton
                  label={`Delete ${name}`}
                  size="s"
                  onClick={() => void change(() => client.request(`/views/${id}`, { method: 'DELETE' }))}
                >
                  <Trash2 />
                </IconButton>
              )}
            </li>
          ))}
        </ul>
        <form className={styles.form} onSubmit={save}>
          <TextField label="Save what is shown as" name="name" required maxLength={100} />
          <Button type="submit" size="s" kind="primary">
            Save
          </Button>
        </form>
      </div>
    </Popover>
  )
}
