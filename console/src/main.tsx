import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import "uplot/dist/uPlot.min.css";
import "./style.css";
import { ApiError, onToken } from "./api/client";
import { applyTheme } from "./lib/theme";
import { router } from "./router";
import { Entrance } from "./ui/Entrance";

applyTheme();

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      refetchOnWindowFocus: false,
      retry: (failures, error) => failures < 2 && error instanceof ApiError && (error.status === 503 || error.status === 429),
    },
  },
});

onToken(() => queries.clear());

createRoot(document.getElementById("root") as HTMLElement).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <Entrance>
        <RouterProvider router={router} />
      </Entrance>
    </QueryClientProvider>
  </StrictMode>,
);
