import { useQuery } from '@tanstack/react-query'
import { Plus } from 'lucide-react'
import { useState } from 'react'
import { client, queryClient } from '../../app/client.ts'
import { useMe } from '../../app/session.ts'
import { Button } from '../../ui/button.tsx'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { Checkbox, TextField } from '../../ui/field.tsx'
import { FormDialog, SecretDialog } from '../../ui/leaving.tsx'
import { Loading, Note, Problem } from '../../ui/states.tsx'
import { notify } from '../../ui/toast.tsx'
import { timeText } from '../data/values.ts'
import styles from '../people/people.module.css'
import { Card, Secret } from '../people/people-page.tsx'
import { useProof } from './proof.tsx'

type Key = {
  readonly id: string
  readonly name: string
  readonly hint: string
  readonly expiresAt: string | null
  readonly lastUsedAt: string | null
}

const queryKey = ['people', 'keys']

/** The keys by which programs act as whoever is signed in. */
export function Keys() {
  const { data, error, refetch } = useQuery({
    queryKey,
    queryFn: async () => (await client.request<{ keys: readonly Key[] }>('/auth/keys')).keys,
  })
  const [isMaking, setMaking] = useState(false)
  const [made, setMade] = useState<string>()
  const [revoked, setRevoked] = useState<Key>()
  return (
    <Card
      title="API keys"
      actions={
        <Button size="s" onClick={() => setMaking(true)}>
          <Plus aria-hidden="true" /> New key
        </Button>
      }
    >
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {error === null && data === undefined && <Loading lines={3} />}
      {data?.length === 0 && <p>None. With a key a program acts as you.</p>}
      <ul className={styles.list}>
        {data?.map((key) => (
          <li key={key.id} className={styles.item}>
            <span>
              {key.name}
              <small>
                {[
                  key.hint,
                  key.expiresAt === null ? 'no end' : `until ${timeText(key.expiresAt)}`,
                  key.lastUsedAt === null ? 'never used' : `last used ${timeText(key.lastUsedAt)}`,
                ].join(' · ')}
              </small>
            </span>
            <Button size="s" aria-label={`Revoke ${key.name}`} onClick={() => setRevoked(key)}>
              Revoke…
            </Button>
          </li>
        ))}
      </ul>
      {isMaking && <NewKey onMade={setMade} onClose={() => setMaking(false)} />}
      {made !== undefined && (
        <SecretDialog title="New API key" onClose={() => setMade(undefined)}>
          <div className={styles.form}>
            <Note kind="warning">This is the only time that it is shown. Keep it where only its program reads it.</Note>
            <Secret label="API key" text={made} />
            <p className={styles.quiet}>Programs send it as `Authorization: Bearer …`.</p>
          </div>
        </SecretDialog>
      )}
      {revoked !== undefined && (
        <ConfirmDialog
          isOpen
          onClose={() => setRevoked(undefined)}
          title={`Revoke ${revoked.name}`}
          action="Revoke"
          isDangerous
          onConfirm={async () => {
            await client.request(`/auth/keys/${revoked.id}`, { method: 'DELETE' })
            await queryClient.invalidateQueries({ queryKey })
            notify('The key opens nothing any more')
          }}
        >
          <p>Programs that use it are refused at once.</p>
        </ConfirmDialog>
      )}
    </Card>
  )
}

type NewKeyProps = { readonly onMade: (key: string) => void; readonly onClose: () => void }

function NewKey({ onMade, onClose }: NewKeyProps) {
  const me = useMe()
  const proof = useProof()
  const [name, setName] = useState('')
  const [until, setUntil] = useState('')
  const [isForRole, setForRole] = useState(false)
  const make = async () => {
    const { key } = await client.request<{ key: string }>('/auth/keys', {
      method: 'POST',
      body: {
        name,
        ...(until !== '' && { expiresAt: new Date(until).toISOString() }),
        ...(isForRole && me.role !== undefined && { role_Id: me.role.id }),
        ...(await proof.take()),
      },
    })
    onMade(key)
    void queryClient.invalidateQueries({ queryKey })
  }
  return (
    <FormDialog
      onClose={onClose}
      title="New API key"
      action="Make it"
      isDisabled={name.trim() === '' || !proof.isReady}
      onConfirm={make}
    >
      <div className={styles.form}>
        <TextField
          label="Name"
          hint="What it is for, such as “Nightly import”."
          autoComplete="off"
          maxLength={100}
          value={name}
          onChange={({ target }) => setName(target.value)}
        />
        <TextField
          label="Works until"
          note={Intl.DateTimeFormat().resolvedOptions().timeZone}
          hint="Without a time it has no end."
          type="datetime-local"
          value={until}
          onChange={({ target }) => setUntil(target.value)}
        />
        {me.role !== undefined && (
          <Checkbox
            label={`Only while I am ${me.role.name}`}
            checked={isForRole}
            onChange={({ target }) => setForRole(target.checked)}
          />
        )}
        {proof.fields}
      </div>
    </FormDialog>
  )
}
