import { useSuspenseQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { client } from '../../app/client.ts'
import { infoQuery } from '../../app/session.ts'
import { Field, Select, TextField } from '../../ui/field.tsx'

type Method = 'currentPassword' | 'twoFactorCode' | 'passkey'

/** A fresh proof of the user's presence, as bodies of requests take it. */
export type Proof = {
  readonly isReady: boolean
  /** Asks the browser where it is a passkey. */
  readonly take: () => Promise<Readonly<Record<string, unknown>>>
  readonly fields: ReactNode
}

/** Asks for a fresh proof: a stolen session alone makes nothing that lasts. */
export function useProof(): Proof {
  const { auth } = useSuspenseQuery(infoQuery).data.data
  const [method, setMethod] = useState<Method>('currentPassword')
  const [text, setText] = useState('')
  const methods: readonly { readonly value: Method; readonly label: string }[] = [
    { value: 'currentPassword', label: 'Your password' },
    ...(auth.twoFactor ? [{ value: 'twoFactorCode' as const, label: 'A code of your authenticator app' }] : []),
    ...(auth.passkey ? [{ value: 'passkey' as const, label: 'A passkey' }] : []),
  ]
  const take = async () => (method === 'passkey' ? { passkey: await askForPasskey() } : { [method]: text.trim() })
  const fields = (
    <>
      {methods.length > 1 && (
        <Field label="Confirm that it is you by">
          {(attributes) => (
            <Select
              {...attributes}
              value={method}
              onChange={({ target }) => {
                setMethod(methods.find(({ value }) => value === target.value)?.value ?? 'currentPassword')
                setText('')
              }}
              options={methods}
            />
          )}
        </Field>
      )}
      {method === 'currentPassword' && (
        <TextField
          label="Your password now"
          type="password"
          autoComplete="current-password"
          value={text}
          onChange={({ target }) => setText(target.value)}
        />
      )}
      {method === 'twoFactorCode' && (
        <TextField
          label="Code"
          inputMode="numeric"
          autoComplete="one-time-code"
          value={text}
          onChange={({ target }) => setText(target.value)}
        />
      )}
    </>
  )
  return { isReady: method === 'passkey' || text.trim() !== '', take, fields }
}

async function askForPasskey(): Promise<object> {
  type Begun = { readonly options: PublicKeyCredentialRequestOptionsJSON; readonly challengeId: string }
  const { options, challengeId } = await client.request<Begun>('/auth/passkey/authenticate/options', {
    method: 'POST',
    body: {},
  })
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options)
  const credential = await navigator.credentials.get({ publicKey })
  if (!(credential instanceof PublicKeyCredential)) throw new Error('No passkey was chosen.')
  return { challengeId, response: credential.toJSON() }
}
