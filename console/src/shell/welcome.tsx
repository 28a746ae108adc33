import { useRouter } from '@tanstack/react-router'
import { type FormEvent, useEffect, useState } from 'react'
import type { SignInResult } from '../../../clients/client.ts'
import { client, queryClient } from '../app/client.ts'
import icon from '../app/icon.svg'
import { meQuery } from '../app/session.ts'
import { Button } from '../ui/button.tsx'
import { TextField } from '../ui/field.tsx'
import { Problem } from '../ui/states.tsx'
import styles from './sign-in.module.css'

/** Behind the link that the first start prints: the administrator chooses a password and is signed in. */
export function Welcome() {
  const router = useRouter()
  // It is no part of the address for longer than it takes to read it.
  const [token] = useState(() => location.hash.slice(1))
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>()
  useEffect(() => {
    document.title = 'Welcome · Console'
    history.replaceState(history.state, '', location.pathname)
  }, [])
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault()
    const password = String(new FormData(event.currentTarget).get('password'))
    setBusy(true)
    setError(undefined)
    try {
      await client.request<SignInResult>('/auth/first-sign-in', {
        method: 'POST',
        body: { token, password, authMode: 'cookie' },
        isAnonymous: true,
      })
      await queryClient.fetchQuery({ ...meQuery, staleTime: 0 })
      await router.navigate({ to: '/data' })
    } catch (failure) {
      setError(failure)
    } finally {
      setBusy(false)
    }
  }
  return (
    <main className={styles.screen}>
      <div className={styles.card}>
        <div className={styles.head}>
          <img src={icon} alt="" />
          <h1>Welcome</h1>
          <p>Choose the password of the first administrator. The one that was printed ends with that.</p>
        </div>
        {error !== undefined && <Problem error={error} />}
        <form className={styles.form} onSubmit={(event) => void submit(event)}>
          <TextField
            label="New password"
            name="password"
            type="password"
            autoComplete="new-password"
            minLength={8}
            hint="At least 8 characters."
            required
            autoFocus
          />
          <Button kind="primary" type="submit" isBusy={isBusy}>
            Set it and sign in
          </Button>
        </form>
      </div>
    </main>
  )
}
