import { CSPProvider } from '@base-ui/react/csp-provider'
import { Tooltip } from '@base-ui/react/tooltip'
import { QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { queryClient, whenSessionEnds } from './app/client.ts'
import { keepLostStyles } from './app/lazy.ts'
import { router } from './app/router.tsx'
import { applyTheme } from './app/theme.ts'
import './ui/tokens.css'
import './ui/base.css'
import { refuseStrayDrops } from './ui/drop.tsx'
import { Toasts } from './ui/toast.tsx'

applyTheme()

keepLostStyles()

refuseStrayDrops()

whenSessionEnds(() => {
  if (router.state.location.pathname === '/sign-in') return
  void router.navigate({ to: '/sign-in', search: { next: router.state.location.href }, replace: true })
})

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <CSPProvider disableStyleElements>
      <QueryClientProvider client={queryClient}>
        <Tooltip.Provider delay={400}>
          <Toasts>
            <RouterProvider router={router} />
          </Toasts>
        </Tooltip.Provider>
      </QueryClientProvider>
    </CSPProvider>
  </StrictMode>,
)
