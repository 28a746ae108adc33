import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { client, queryClient } from '../../app/client.ts'
import { Button, looks } from '../../ui/button.tsx'
import { ConfirmDialog, Dialog } from '../../ui/dialog.tsx'
import { TextField } from '../../ui/field.tsx'
import { SecretDialog } from '../../ui/leaving.tsx'
import { QrCode } from '../../ui/qr-code.tsx'
import { Loading, Note, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { notify } from '../../ui/toast.tsx'
import styles from '../people/people.module.css'
import { Card, Secret } from '../people/people-page.tsx'
import { useProof } from './proof.tsx'

const queryKey = ['people', 'second-factor']

/** The second factor of whoever is signed in. */
export function SecondFactor() {
  const { data, error, refetch } = useQuery({
    queryKey,
    queryFn: () => client.request<{ enabled: boolean }>('/auth/2fa'),
  })
  const [open, setOpen] = useState<'set-up' | 'switch-off'>()
  const [codes, setCodes] = useState<readonly string[]>()
  return (
    <Card
      title="Second factor"
      actions={
        data !== undefined && <Badge tone={data.enabled ? 'good' : 'plain'}>{data.enabled ? 'on' : 'off'}</Badge>
      }
    >
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {error === null && data === undefined && <Loading lines={2} />}
      {data !== undefined && (
        <>
          <p>
            {data.enabled
              ? 'Signing in asks for a code of your authenticator app besides the password.'
              : 'With it, signing in asks for a code of an authenticator app besides the password.'}
          </p>
          <div className={styles.end}>
            <Button onClick={() => setOpen(data.enabled ? 'switch-off' : 'set-up')}>
              {data.enabled ? 'Switch off…' : 'Set up…'}
            </Button>
          </div>
        </>
      )}
      {open === 'switch-off' && <SwitchOff onClose={() => setOpen(undefined)} />}
      {open === 'set-up' && <SetUp onClose={() => setOpen(undefined)} onDone={setCodes} />}
      {codes !== undefined && (
        <SecretDialog title="Backup codes" what="them" onClose={() => setCodes(undefined)}>
          <div className={styles.form}>
            <Note kind="warning">
              Keep these codes where your phone is not. Each signs you in once when you have lost it, and they are shown
              only now.
            </Note>
            <Secret label="Backup codes" text={codes.join(' ')} />
          </div>
        </SecretDialog>
      )}
    </Card>
  )
}

function SwitchOff({ onClose }: { readonly onClose: () => void }) {
  const [password, setPassword] = useState('')
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      title="Switch the second factor off"
      action="Switch off"
      isDangerous
      isDisabled={password === ''}
      onConfirm={async () => {
        await client.request('/auth/2fa/disable', { method: 'POST', body: { password } })
        await queryClient.invalidateQueries({ queryKey })
        notify('The second factor is off')
      }}
    >
      <TextField
        label="Your password now"
        type="password"
        autoComplete="current-password"
        value={password}
        onChange={({ target }) => setPassword(target.value)}
      />
    </ConfirmDialog>
  )
}

type Begun = { readonly secret: string; readonly otpauthUrl: string; readonly backupCodes: readonly string[] }

type SetUpProps = { readonly onClose: () => void; readonly onDone: (backupCodes: readonly string[]) => void }

/** First who it is, then the secret for the app, then a code of the app: only that switches it on. */
function SetUp({ onClose, onDone }: SetUpProps) {
  const proof = useProof()
  const [begun, setBegun] = useState<Begun>()
  const [code, setCode] = useState('')
  const [error, setError] = useState<unknown>()
  const [isBusy, setBusy] = useState(false)
  const attempt = async (work: () => Promise<void>) => {
    setBusy(true)
    setError(undefined)
    try {
      await work()
    } catch (failure) {
      setError(failure)
    } finally {
      setBusy(false)
    }
  }
  const begin = async () =>
    setBegun(await client.request<Begun>('/auth/2fa/enable', { method: 'POST', body: await proof.take() }))
  const finish = async ({ backupCodes }: Begun) => {
    await client.request('/auth/2fa/verify-setup', { method: 'POST', body: { code: code.replaceAll(/\s/g, '') } })
    onClose()
    onDone(backupCodes)
    await queryClient.invalidateQueries({ queryKey })
    notify('The second factor is on')
  }
  const footer = (
    <>
      <Button onClick={onClose}>Cancel</Button>
      <Button
        kind="primary"
        isBusy={isBusy}
        disabled={begun === undefined ? !proof.isReady : code.trim() === ''}
        onClick={() => void attempt(() => (begun === undefined ? begin() : finish(begun)))}
      >
        {begun === undefined ? 'Continue' : 'Switch on'}
      </Button>
    </>
  )
  return (
    <Dialog isOpen onClose={onClose} title="Set up a second factor" footer={footer}>
      <div className={styles.form}>
        {begun === undefined && proof.fields}
        {begun !== undefined && (
          <>
            <p>Scan this with your authenticator app, or type the secret below it there.</p>
            <QrCode text={begun.otpauthUrl} label="QR code of the secret" />
            <Secret label="Secret" text={begun.secret} />
            <a href={begun.otpauthUrl} {...looks({ size: 's' })}>
              Open the app of this device
            </a>
            <TextField
              label="Code that the app shows"
              inputMode="numeric"
              autoComplete="one-time-code"
              value={code}
              onChange={({ target }) => setCode(target.value)}
            />
          </>
        )}
        {error !== undefined && <Problem error={error} />}
      </div>
    </Dialog>
  )
}
