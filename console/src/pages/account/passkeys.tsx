import { useQuery } from '@tanstack/react-query'
import { Plus } from 'lucide-react'
import { useState } from 'react'
import { client, queryClient } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/leaving.tsx'
import { Loading, Problem } from '../../ui/states.tsx'
import { notify } from '../../ui/toast.tsx'
import { timeText } from '../data/values.ts'
import styles from '../people/people.module.css'
import { Card } from '../people/people-page.tsx'
import { useProof } from './proof.tsx'

type Passkey = {
  readonly id: string
  readonly name: string
  readonly createdAt: string
  readonly lastUsedAt: string | null
}

const queryKey = ['people', 'passkeys']

/** Devices that open the account by finger, face or PIN. */
export function Passkeys() {
  const { data, error, refetch } = useQuery({
    queryKey,
    queryFn: async () => (await client.request<{ passkeys: readonly Passkey[] }>('/auth/passkey')).passkeys,
  })
  const [isAdding, setAdding] = useState(false)
  const [removed, setRemoved] = useState<Passkey>()
  return (
    <Card
      title="Passkeys"
      actions={
        <Button size="s" onClick={() => setAdding(true)}>
          <Plus aria-hidden="true" /> Add this device
        </Button>
      }
    >
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {error === null && data === undefined && <Loading lines={3} />}
      {data?.length === 0 && <p>None. A passkey signs you in by finger, face or PIN, without a password.</p>}
      <ul className={styles.list}>
        {data?.map((passkey) => (
          <li key={passkey.id} className={styles.item}>
            <span>
              {passkey.name}
              <small>
                since {timeText(passkey.createdAt)}
                {passkey.lastUsedAt === null ? ' · never used' : ` · last used ${timeText(passkey.lastUsedAt)}`}
              </small>
            </span>
            <Button size="s" aria-label={`Remove ${passkey.name}`} onClick={() => setRemoved(passkey)}>
              Remove…
            </Button>
          </li>
        ))}
      </ul>
      {isAdding && <Add onClose={() => setAdding(false)} />}
      {removed !== undefined && (
        <ConfirmDialog
          isOpen
          onClose={() => setRemoved(undefined)}
          title={`Remove ${removed.name}`}
          action="Remove"
          isDangerous
          onConfirm={async () => {
            await client.request(`/auth/passkey/${removed.id}`, { method: 'DELETE' })
            await queryClient.invalidateQueries({ queryKey })
            notify('The passkey opens nothing any more')
          }}
        >
          <p>Sessions that it opened go on; end them above.</p>
        </ConfirmDialog>
      )}
    </Card>
  )
}

function Add({ onClose }: { readonly onClose: () => void }) {
  const proof = useProof()
  const [name, setName] = useState('')
  return (
    <FormDialog
      onClose={onClose}
      title="Add this device"
      action="Add"
      isDisabled={name.trim() === '' || !proof.isReady}
      onConfirm={async () => {
        await client.auth.addPasskey(name.trim(), await proof.take())
        await queryClient.invalidateQueries({ queryKey })
        notify('This device opens your account now')
      }}
    >
      <div className={styles.form}>
        <TextField
          label="Name"
          hint="How you tell it from others, such as “My laptop”."
          autoComplete="off"
          maxLength={100}
          value={name}
          onChange={({ target }) => setName(target.value)}
        />
        {proof.fields}
      </div>
    </FormDialog>
  )
}
